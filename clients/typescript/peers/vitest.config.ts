import { mergeConfig } from "vitest/config";
import base from "../vitest.config.js";

const peer = (name: string) => new URL(`./node_modules/${name}`, import.meta.url).pathname;

/** The tests of the client that use Redis, with the packages of this folder for ioredis and redis. */
export default mergeConfig(base, {
  test: { exclude: ["generated", "outbox", "races", "readme"].map((name) => `test/${name}.test.ts`) },
  resolve: {
    alias: [
      { find: /^ioredis$/, replacement: peer("ioredis") },
      { find: /^redis$/, replacement: peer("redis") },
    ],
  },
});
