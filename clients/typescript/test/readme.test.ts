import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { startMySQL, type MySQL } from "./mysql.js";
import { freePort } from "./processes.ts";

const at = (path: string) => new URL(path, import.meta.url).pathname;
const read = (path: string) => readFileSync(at(path), "utf8");
const root = at("../../..");

/** The blocks of README.md in a language. */
const blocks = (language: string) =>
  [...read("../README.md").matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text]) => text!);

it("has only code that is compiled and run", () => {
  const shop = at("../../../examples/typescript-shop/src");
  const files = [read("readme.ts").replace("../recipes/", "./"), ...readdirSync(shop).map((name) => readFileSync(join(shop, name), "utf8"))];
  for (const block of blocks("ts")) expect(files.filter((text) => text.includes(block)), block).not.toEqual([]);
  expect(blocks("ts").length).toBeGreaterThan(4);
});

let mysql: MySQL;
let folder: string;
const servers: ChildProcess[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "unstale-readme-"));
  mysql = await startMySQL();
  await mysql.database("shop");
});

afterAll(async () => {
  for (const server of servers.reverse()) {
    const ended = once(server, "close");
    server.kill();
    await ended;
  }
  await mysql.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a program, which the end of the tests stops. */
function start(program: string, args: string[], env: NodeJS.ProcessEnv = process.env): void {
  servers.push(spawn(program, args, { cwd: root, env, stdio: ["ignore", "ignore", "inherit"] }));
}

it("works as it says", async () => {
  const [install, commands] = blocks("sh");
  const generated = join(folder, "shopcache.ts");
  const port = await freePort();
  const redisUrl = `redis://127.0.0.1:${port}/0`;
  start("redis-server", ["--port", String(port), "--save", "", "--dir", folder]);
  const env = { ...process.env, PATH: `${join(root, "bin")}:${process.env.PATH}` };

  const generate = install!.split("\n")[1]!.replace("src/shopcache.ts", generated);
  execFileSync("sh", ["-ec", generate], { cwd: root, env });
  expect(readFileSync(generated, "utf8")).toBe(read("../recipes/shopcache.ts"));

  const script = commands!
    .replace("unstale:unstale@tcp(127.0.0.1:3306)/shop", `root@unix(${mysql.socketPath})/shop`)
    .replace("redis://127.0.0.1:6379/0", redisUrl)
    .replace("unstale run", "exec unstale run --listen - --log-level warn");
  start("sh", ["-ec", script], env);

  vi.stubEnv("MYSQL_URL", `mysql://root@localhost/shop?socketPath=${mysql.socketPath}`);
  vi.stubEnv("REDIS_URL", redisUrl);
  vi.stubEnv("APP_ENV", "dev");
  const shop = await import("./readme.js");
  try {
    await shop.pool.query("CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)");
    await shop.pool.query("CREATE TABLE product_categories (product_id INT, category_id INT)");
    await shop.pool.query("INSERT INTO products VALUES (42, 4990), (43, 1250)");
    await shop.redis.ping();
    expect(await shop.page(42)).toEqual({ id: 42, cents: 4990 });
    expect(await shop.page(42)).toEqual({ id: 42, cents: 4990 });
    expect(await shop.page(44)).toBeUndefined();
    expect(shop.cache.stats()).toMatchObject({ loads: 2, hits: 1 });
    expect(await shop.pages([43, 42, 44])).toEqual([{ id: 43, cents: 1250 }, { id: 42, cents: 4990 }]);

    const token = await shop.changePrice(42, 4490);
    expect(await shop.page(42, token)).toEqual({ id: 42, cents: 4490 });
    await vi.waitFor(async () => expect(await shop.page(42)).toEqual({ id: 42, cents: 4490 }), { timeout: 10_000 });
  } finally {
    await shop.stop();
    vi.unstubAllEnvs();
  }
});
