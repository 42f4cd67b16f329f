// What the palette's names look like: readable on the ground of either theme. A picture that leaves the board is light.

export type Theme = "light" | "dark";

const SHADES: Record<string, readonly [light: string, dark: string]> = {
  ink: ["#1f2328", "#eceff3"],
  grey: ["#7d8590", "#9aa4b0"],
  red: ["#d1242f", "#ff7b72"],
  orange: ["#c4580a", "#ffa657"],
  green: ["#1a7f37", "#56d364"],
  teal: ["#0b7a8a", "#4fd1d9"],
  blue: ["#0a62d0", "#79b8ff"],
  violet: ["#7a3fd1", "#c9a4ff"],
};

export const GROUND: Record<Theme, string> = { light: "#ffffff", dark: "#16191d" };

export function shade(color: string, theme: Theme): string {
  return SHADES[color]?.[theme === "dark" ? 1 : 0] ?? color;
}
