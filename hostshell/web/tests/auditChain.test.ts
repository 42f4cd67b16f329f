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

function reader(rows: AuditRow[]) {
  const last = rows.at(-1);
  return async (after: number, limit: number): Promise<AuditPage> => ({
    rows: rows.filter((row) => row.seq > after).slice(0, limit),
    head: { seq: last?.seq ?? 0, hash: last?.hash ?? "0".repeat(64) },
  });
}

describe("the audit's chain", () => {
  it("holds when nothing was touched", async () => {
    const rows = await chainOf(1_203);
    expect(await verifyChain(reader(rows), () => undefined)).toEqual({ ok: true, rows: 1_203 });
    expect(await verifyChain(reader([]), () => undefined)).toEqual({ ok: true, rows: 0 });
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
