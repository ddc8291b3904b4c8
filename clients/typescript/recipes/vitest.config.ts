import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: [{ find: /^@unstale\/client$/, replacement: new URL("../src/index.ts", import.meta.url).pathname }],
  },
  test: {
    include: ["*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
