import { defineConfig } from "vite";

// The whiteboard's page script, into its bundle: one classic script, as a surface has no origin to import modules from.
export default defineConfig({
  publicDir: false,
  build: {
    outDir: "../../workers/lineup_workers/whiteboard/surface/dist",
    emptyOutDir: true,
    target: "es2022",
    lib: {
      entry: "surfaces/whiteboard/main.ts",
      name: "lineupBoard",
      formats: ["iife"],
      fileName: () => "board.js",
    },
  },
});
