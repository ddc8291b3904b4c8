import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { startMySQL, type MySQL } from "./mysql.js";
import { freePort } from "./processes.ts";

const at = (path: string) => new URL(path, import.meta.url).pathname;
const read = (path: string) => readFileSync(at(path), "utf8");
const root = at("../../..");

/** The blocks of README.md in a language. */
const blocks = (language: string) =>
  [...read("../README.md").matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text]) => text!);

it("has the whole program that is compiled and run here, and code of the example", () => {
  const shop = at("../../../examples/typescript-shop/src");
  const files = readdirSync(shop).map((name) => readFileSync(join(shop, name), "utf8"));
  const ofNest = blocks("ts").filter((block) => block.startsWith(" "));
  for (const block of ofNest) expect(files.filter((text) => text.includes(block)), block).not.toEqual([]);
  expect(ofNest).toHaveLength(2);
  const program = blocks("ts").filter((block) => !ofNest.includes(block)).join("\n");
  expect(read("readme.ts").replace("../recipes/", "./")).toBe(`// The program of README.md, which test/readme.test.ts runs.\n${program}`);
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
  const [install, create, work] = blocks("sh");
  const generated = join(folder, "shopcache.ts");
  const port = await freePort();
  const redisUrl = `redis://127.0.0.1:${port}/0`;
  start("redis-server", ["--port", String(port), "--save", "", "--dir", folder]);
  const env = { ...process.env, PATH: `${join(root, "bin")}:${process.env.PATH}` };

  const generate = install!.split("\n")[1]!.replace("src/shopcache.ts", generated);
  execFileSync("sh", ["-ec", generate], { cwd: root, env });
  expect(readFileSync(generated, "utf8")).toBe(read("../recipes/shopcache.ts"));

  const commands = create!
    .replace("unstale:unstale@tcp(127.0.0.1:3306)/shop", `root@unix(${mysql.socketPath})/shop`)
    .replace("mysql://unstale:unstale@127.0.0.1:3306/shop", `'mysql://root@localhost/shop?socketPath=${mysql.socketPath}'`)
    .replace("redis://127.0.0.1:6379/0", redisUrl);
  const set = execFileSync("sh", ["-ec", `{\n${commands}} >&2\nenv -0`], { cwd: root, env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const variables = Object.fromEntries(set.split("\0").map((line) => line.split(/=(.*)/s)).filter(([name]) => name)) as NodeJS.ProcessEnv;
  const connection = await createConnection({ socketPath: mysql.socketPath, user: "root", database: "shop", multipleStatements: true });
  for (const statements of blocks("sql")) await connection.query(statements);
  await connection.end();
  start("sh", ["-ec", work!.replace("unstale run &", "exec unstale run --listen - --log-level warn")], variables);

  for (const name of ["MYSQL_URL", "REDIS_URL", "APP_ENV"]) vi.stubEnv(name, variables[name]);
  const shop = await import("./readme.js");
  try {
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
