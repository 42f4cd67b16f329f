// How the workspace looks: colours, type and radii for the component kit. Contrast is at least 4.5:1 in both schemes.

import { type CSSVariablesResolver, createTheme, type MantineColorsTuple, Menu } from "@mantine/core";

const brand: MantineColorsTuple = [
  "#eef1ff",
  "#dde3ff",
  "#bcc7ff",
  "#9aabff",
  "#7b8ff8",
  "#6079f0",
  "#4a63e7",
  "#2f4bd6",
  "#263eb6",
  "#1d3192",
];

const dark: MantineColorsTuple = [
  "#e6e9ee",
  "#c4cad4",
  "#a4acb9",
  "#98a1af",
  "#343942",
  "#2c3038",
  "#23262d",
  "#1b1e24",
  "#16181d",
  "#101216",
];

export const theme = createTheme({
  primaryColor: "brand",
  primaryShade: { light: 7, dark: 6 },
  colors: { brand, dark },
  defaultRadius: "md",
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif',
  fontFamilyMonospace:
    'ui-monospace, "SF Mono", "Cascadia Code", "JetBrains Mono", Menlo, Consolas, monospace',
  headings: { fontWeight: "650" },
  cursorType: "pointer",
  respectReducedMotion: true,
  focusRing: "auto",
  components: {
    Modal: { styles: { title: { fontWeight: 650 } } },
    Drawer: { styles: { title: { fontWeight: 650 } } },
    // The kit's placeholder is no menu item, and the focus belongs on the first one anyway.
    Menu: Menu.extend({ defaultProps: { withInitialFocusPlaceholder: false } }),
  },
});

export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#565e6b",
    "--mantine-color-placeholder": "#626b78",
    "--mantine-color-error": "#c22a2a",
    "--mantine-color-anchor": "#2f4bd6",
    "--mantine-color-body": "#ffffff",
    "--lu-sunken": "#f5f6f9",
    "--lu-raised": "#ffffff",
    "--lu-line": "#e1e4ea",
    "--lu-edge": "#868e9b",
    "--lu-bubble": "#e8ecff",
    "--lu-good": "#1d7440",
    "--lu-good-soft": "#e3f5e9",
    "--lu-warn": "#8a5200",
    "--lu-warn-soft": "#fff2d9",
    "--lu-bad": "#b32222",
    "--lu-bad-soft": "#fdeaea",
    "--lu-calm": "#4b5361",
    "--lu-calm-soft": "#eceef2",
    "--lu-accent": "#2f4bd6",
    "--lu-accent-soft": "#eef1ff",
  },
  dark: {
    "--mantine-color-dimmed": "#a4acb9",
    "--mantine-color-placeholder": "#98a1af",
    "--mantine-color-error": "#ff9b9b",
    "--mantine-color-anchor": "#a9b8ff",
    "--mantine-color-body": "#16181d",
    "--mantine-color-text": "#e6e9ee",
    "--mantine-color-default": "#23262d",
    "--mantine-color-default-hover": "#2c3038",
    "--mantine-color-default-border": "#3a3f49",
    "--mantine-color-brand-light": "#232b4d",
    "--mantine-color-brand-light-hover": "#2c3661",
    "--mantine-color-brand-light-color": "#bcc7ff",
    "--lu-sunken": "#101216",
    "--lu-raised": "#1d2026",
    "--lu-line": "#2f343d",
    "--lu-edge": "#737b88",
    "--lu-bubble": "#27315c",
    "--lu-good": "#83d6a2",
    "--lu-good-soft": "#173423",
    "--lu-warn": "#f0c274",
    "--lu-warn-soft": "#3a2c12",
    "--lu-bad": "#ffa0a0",
    "--lu-bad-soft": "#421d1f",
    "--lu-calm": "#b4bcc9",
    "--lu-calm-soft": "#2a2e36",
    "--lu-accent": "#a9b8ff",
    "--lu-accent-soft": "#232b4d",
  },
});
