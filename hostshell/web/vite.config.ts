import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The workspace's pages; hostshell serves them from lineup_hostshell/static.

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../lineup_hostshell/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // no data: URLs, so that the pages' policy can stay narrow
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "react", test: /node_modules[\\/](react|react-dom|scheduler)[\\/]/ },
            { name: "mantine", test: /node_modules[\\/](@mantine|@floating-ui|react-remove-scroll|clsx)/ },
            {
              name: "markdown",
              test: /node_modules[\\/](markdown-it|dompurify|linkify-it|mdurl|entities|uc\.micro)/,
            },
          ],
        },
      },
    },
  },
  test: {
    environment: "happy-dom",
    pool: "threads",
    maxWorkers: 2, // each makes a DOM of its own; more of them only wait for each other
    testTimeout: 30_000,
    include: ["tests/**/*.test.ts", "tests/**/*.test.tsx"],
  },
});
