// One picture per MiniApp, in a colour that stays its own.

import { IconApps, IconBrush, IconClockHour4, IconListCheck, IconMessageCircle } from "@tabler/icons-react";
import classes from "./AppIcon.module.css";

const ICONS: Record<string, typeof IconApps> = {
  chat: IconMessageCircle,
  "task-dashboard": IconListCheck,
  whiteboard: IconBrush,
  pomodoro: IconClockHour4,
};

export function AppIcon({ scope, size = 28 }: { scope: string; size?: number }) {
  const Icon = ICONS[scope] ?? IconApps;
  return (
    <span
      className={classes.icon}
      style={{ width: size, height: size, "--hue": hue(scope) } as React.CSSProperties}
      aria-hidden="true"
    >
      <Icon size={size * 0.62} stroke={1.8} />
    </span>
  );
}

function hue(scope: string): number {
  let sum = 7;
  for (const char of scope) sum = (sum * 31 + char.charCodeAt(0)) % 360;
  return sum;
}
