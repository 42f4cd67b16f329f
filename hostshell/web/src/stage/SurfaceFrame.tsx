// A restricted surface on the page: an opaque-origin frame, one load at a time.

import { Button, Loader, Stack, Text, useComputedColorScheme } from "@mantine/core";
import { IconShieldX } from "@tabler/icons-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useWords } from "../i18n";
import type { Surface } from "../runtime/rows";
import { useClient, useSaved, useWorkspace } from "../state/react";
import { useVisible } from "../ui/hooks";
import classes from "./Stage.module.css";
import { type HostInfo, type Projection, SurfaceHost } from "./surfaceHost";

interface Load {
  url: string;
  nonce: string;
  load_id: string;
}

type Phase = "asking" | "loading" | "ready" | "failed" | "torn";

export function SurfaceFrame({ surface, title }: { surface: Surface; title: string }) {
  const client = useClient();
  const words = useWords();
  const [load, setLoad] = useState<Load | null>(null);
  const [phase, setPhase] = useState<Phase>("asking");
  const [attempt, setAttempt] = useState(0);
  const online = useWorkspace((state) => state.link === "online");
  const surfaceId = surface.surface_id;
  const asking = phase === "asking";

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new attempt asks for a new load
  useEffect(() => {
    if (!online || !asking) return;
    let gone = false;
    void client.link.query("surface.load", { surface_id: surfaceId }).then((answer) => {
      if (gone) return;
      const given = answer.accepted ? asLoad(answer.detail) : null;
      if (given) setLoad(given);
      setPhase(given ? "loading" : "failed");
    });
    return () => {
      gone = true;
    };
  }, [client, surfaceId, online, asking, attempt]);

  const again = () => {
    setLoad(null);
    setPhase("asking");
    setAttempt((n) => n + 1);
  };

  if (phase === "failed" || phase === "torn") {
    return (
      <Stack align="center" justify="center" h="100%" p="xl" ta="center" role="alert">
        <IconShieldX size={44} stroke={1.3} aria-hidden="true" />
        <Text fw={600}>{phase === "torn" ? words.stage.torn : words.stage.loadFailed}</Text>
        <Text c="dimmed">{words.stage.tornHint}</Text>
        <Button variant="default" onClick={again}>
          {words.stage.reload}
        </Button>
      </Stack>
    );
  }
  return (
    <div className={classes.surface} data-phase={phase}>
      {load && (
        <Frame
          key={load.load_id}
          load={load}
          surface={surface}
          title={title}
          onReady={() => setPhase("ready")}
          onTorn={() => setPhase("torn")}
        />
      )}
      {phase !== "ready" && (
        <output className={classes.surfaceLoading} aria-label={words.loading}>
          <Loader />
        </output>
      )}
    </div>
  );
}

interface FrameProps {
  load: Load;
  surface: Surface;
  title: string;
  onReady(): void;
  onTorn(): void;
}

function Frame({ load, surface, title, onReady, onTorn }: FrameProps) {
  const client = useClient();
  const frame = useRef<HTMLIFrameElement>(null);
  const loads = useRef(0);
  const host = useHostInfo();
  const projection = useProjection(surface);
  const bridge = useRef<SurfaceHost | null>(null);
  const first = useRef({ host, projection, onReady, onTorn });

  useEffect(() => {
    const made = new SurfaceHost(
      client,
      surface.surface_id,
      load.nonce,
      first.current.host,
      first.current.projection,
      () => first.current.onReady(),
    );
    bridge.current = made;
    loads.current = 0;
    // Only now may the document come: a load event that nobody hears would be one too few.
    if (frame.current) frame.current.src = load.url;
    return () => made.leave();
  }, [client, surface.surface_id, load]);

  // The server counts documents too: a second one under this load's address, or one from elsewhere, ends the load.
  useEffect(
    () =>
      client.onTorn((loadId) => {
        if (loadId !== load.load_id) return;
        bridge.current?.close();
        first.current.onTorn();
      }),
    [client, load],
  );
  useEffect(
    () => () => {
      void client.link.query("surface.unload", { load_id: load.load_id });
    },
    [client, load],
  );
  useEffect(() => bridge.current?.setHost(host), [host]);
  useEffect(() => bridge.current?.setProjection(projection), [projection]);

  const loaded = () => {
    const target = frame.current?.contentWindow;
    if (!target || !frame.current?.src) return;
    loads.current++;
    if (loads.current === 1) {
      bridge.current?.connect(target);
    } else {
      // The document has gone somewhere else in its frame: its port dies, and nothing more is said to it.
      bridge.current?.close();
      onTorn();
    }
  };

  return (
    <iframe
      ref={frame}
      className={classes.frame}
      title={title}
      sandbox="allow-scripts"
      referrerPolicy="no-referrer"
      allow=""
      data-testid="surface"
      data-surface={surface.surface_id}
      onLoad={loaded}
    />
  );
}

function useHostInfo(): HostInfo {
  const words = useWords();
  const theme = useComputedColorScheme("light");
  const visible = useVisible();
  const skew = useWorkspace((state) => state.skewMs);
  return useMemo(
    () => ({
      theme,
      locale: words.locale,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      visibility: visible ? "visible" : "hidden",
      reducedMotion: matchMedia("(prefers-reduced-motion: reduce)").matches,
      clockSkewMs: skew,
    }),
    [theme, words, visible, skew],
  );
}

/** What a surface may read of its own instance, and of nothing else. */
function useProjection(surface: Surface): Projection {
  const operations = useWorkspace((state) =>
    Object.values(state.operations).filter((row) => row.instance_id === surface.instance_id),
  );
  const snapshot = useSaved(surface.instance_id);
  return useMemo(() => ({ operations, snapshot }), [operations, snapshot]);
}

function asLoad(detail: unknown): Load | null {
  const { url, nonce, load_id } = (detail ?? {}) as Partial<Load>;
  if (typeof url !== "string" || typeof nonce !== "string" || typeof load_id !== "string") return null;
  // Only our own surface server: loopback, another port.
  return /^http:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d+\/s\//.test(url) ? { url, nonce, load_id } : null;
}
