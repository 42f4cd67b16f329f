import { defineConfig } from "vite";

// The script that every surface document gets: one classic script, no imports, beside the workspace's pages.
export default defineConfig({
  publicDir: false,
  build: {
    outDir: "../lineup_hostshell/static",
    emptyOutDir: false,
    target: "es2022",
    lib: {
      entry: "bridge/lineup-bridge.ts",
      name: "lineupBridge",
      formats: ["iife"],
      fileName: () => "lineup-bridge.js",
    },
  },
});
