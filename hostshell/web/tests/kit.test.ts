import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "..");
const styles = join(root, "node_modules/@mantine/core/styles");

function used(): string[] {
  const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".tsx"),
  );
  const names = files.flatMap((file) => {
    const text = readFileSync(join(root, "src", file), "utf8");
    return [...text.matchAll(/import \{([^}]*)\} from "@mantine\/core"/g)].flatMap((found) =>
      (found[1] ?? "").split(",").map((name) => name.replace(/\btype\b/, "").trim()),
    );
  });
  return [...new Set(names)].filter((name) => existsSync(join(styles, `${name}.css`)));
}

it("every component of the kit that is used has its styles", () => {
  const kit = readFileSync(join(root, "src/ui/kit.ts"), "utf8");
  expect(used().length).toBeGreaterThan(10);
  expect(used().filter((name) => !kit.includes(`/${name}.css`))).toEqual([]);
});
