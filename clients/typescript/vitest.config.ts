import { defineConfig } from "vitest/config";
import { writeLua } from "./build.mjs";

writeLua();

const source = (name: string) => new URL(`./src/${name}.ts`, import.meta.url).pathname;

export default defineConfig({
  resolve: {
    alias: [
      { find: /^@unstale\/client$/, replacement: source("index") },
      { find: /^@unstale\/client\/nest$/, replacement: source("nest") },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
