import { describe, expect, it } from "vitest";
import { type AuditPage, type AuditRow, canonicalJson, hashOf, verifyChain } from "../src/pages/auditChain";

async function chainOf(length: number): Promise<AuditRow[]> {
  const rows: AuditRow[] = [];
  let prev = "0".repeat(64);
  for (let seq = 1; seq <= length; seq++) {
    const body = {
      seq,
      at_ms: 1_000 + seq,
      actor: "agent",
      kind: "call.received",
      subjects: ["é", "c-1"],
      cause: "m",
      detail: { n: seq / 4 },
    };
    const hash = await hashOf(prev, body);
    rows.push({ ...body, prev, hash });
    prev = hash;
  }
  return rows;
}

/** Pages of a hundred; before each the store lets go of rows up to the next of ``archived``, and stays at its last. */
function reader(rows: AuditRow[], archived: number[] = [0]) {
  const left = [...archived];
  const at = (seq: number) => ({ seq, hash: rows.find((row) => row.seq === seq)?.hash ?? "0".repeat(64) });
  return async (after: number): Promise<AuditPage> => {
    const anchor = at((left.length > 1 ? left.shift() : left[0]) ?? 0);
    const kept = rows.filter((row) => row.seq > Math.max(after, anchor.seq));
    return { rows: kept.slice(0, 100), head: at(rows.at(-1)?.seq ?? 0), anchor };
  };
}

describe("the audit's chain", () => {
  it("holds when nothing was touched", async () => {
    const rows = await chainOf(1_203);
    expect(await verifyChain(reader(rows), () => undefined)).toEqual({ ok: true, rows: 1_203, archived: 0 });
    expect(await verifyChain(reader([]), () => undefined)).toEqual({ ok: true, rows: 0, archived: 0 });
  });

  it("goes on from the archive's last row", async () => {
    const rows = await chainOf(350);
    const seen: number[] = [];
    const verdict = await verifyChain(reader(rows, [120]), (count) => seen.push(count));
    expect(verdict).toEqual({ ok: true, rows: 230, archived: 120 });
    expect(seen).toEqual([100, 200, 230]);
    expect(await verifyChain(reader(rows, [350]), () => undefined)).toEqual({
      ok: true,
      rows: 0,
      archived: 350,
    });
  });

  it("begins again when rows go into the archive in front of it, and gives up in the end", async () => {
    const rows = await chainOf(350);
    expect(await verifyChain(reader(rows, [0, 0, 220]), () => undefined)).toEqual({
      ok: true,
      rows: 130,
      archived: 220,
    });
    const ever = [...Array(6).keys()].flatMap((n) => [n * 40, n * 40 + 110]);
    await expect(verifyChain(reader(rows, ever), () => undefined)).rejects.toThrow("archive");
  });

  it.each([
    [
      "a changed row",
      (rows: AuditRow[]) => rows.map((row) => (row.seq === 7 ? { ...row, actor: "person" } : row)),
    ],
    ["a row taken out", (rows: AuditRow[]) => rows.filter((row) => row.seq !== 7)],
    [
      "a row forged with a fitting hash",
      (rows: AuditRow[]) => rows.map((row) => (row.seq === 7 ? { ...row, hash: rows[0]?.hash ?? "" } : row)),
    ],
  ])("breaks at %s", async (_name, damage) => {
    const rows = damage(await chainOf(12));
    expect(await verifyChain(reader(rows), () => undefined)).toEqual({ ok: false, seq: 7 });
  });

  it("has the Runtime's canonical form", () => {
    expect(canonicalJson({ b: 1, a: [true, null, "é\n"], "\u{1f600}": 0, "\uffff": 0 })).toBe(
      '{"a":[true,null,"é\\n"],"b":1,"\uffff":0,"\u{1f600}":0}',
    );
    expect(canonicalJson(0.00001)).toBe("1e-05");
    expect(canonicalJson(1e300)).toBe("1e+300");
    expect(canonicalJson(-0)).toBe("0");
  });
});
