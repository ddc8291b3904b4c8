// Reads of a caller that must see its own writes.
import { createConnection, createPool, type Connection, type Pool } from "mysql2/promise";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { inTransaction, readOf } from "../src/index.js";
import { formatToken, parseToken, settled, type Queryable } from "../src/token.js";
import { startMySQL, type MySQL } from "./mysql.js";
import { RedisServer, cacheOf, connector, libraries, signal } from "./redis.js";

let mysql: MySQL;
let redis: RedisServer;
let admin: Connection;
let pool: Pool;
let queries = 0;
const primary: Queryable = { query: (sql) => (queries++, pool.query(sql)) };

beforeAll(async () => {
  [mysql, redis] = await Promise.all([startMySQL(), RedisServer.start()]);
  await mysql.database("shop");
  const options = { socketPath: mysql.socketPath, user: "root", database: "shop" };
  admin = await createConnection(options);
  pool = createPool(options);
}, 120_000);
afterAll(async () => {
  await pool?.end();
  await admin?.end();
  await Promise.all([mysql?.stop(), redis?.stop()]);
});
beforeEach(async () => {
  await redis.admin.flushall();
  for (const table of ["cache_outbox", "cache_outbox_delayed", "cache_outbox_dead"]) await admin.query(`DELETE FROM ${table}`);
  queries = 0;
});

const write = async () => (await inTransaction(pool, (tx) => tx.enqueue({ entity: "product", id: 42 }))).token;
const read = readOf<string>("k", { ttl: 60_000 });
const never = () => Promise.reject(new Error("nothing is to be loaded"));

describe.each(libraries)("with %s", (library) => {
  const open = (options = {}) => cacheOf(connector(library, redis.port), { primary, ...options });

  test("until its rows are settled, a caller loads, and may store the value", async () => {
    const cache = open();
    await cache.fetch(read, () => "old");
    const token = await write();
    expect(await cache.fetchResult(read, () => "new", { token })).toMatchObject({ value: "new", source: "loader" });
    expect(await cache.fetch(read, never)).toBe("new");
    expect(await cache.fetch(read, () => "newer", { token })).toBe("newer");
    expect(cache.stats().unsettled).toBe(2);
    await admin.query("DELETE FROM cache_outbox");
    expect(await cache.fetch(read, never, { token })).toBe("newer");
    expect(queries).toBe(3);
    expect(await cache.fetch(read, never, { token })).toBe("newer"); // which is final
    expect(queries).toBe(3);
  });

  test("it does not wait for the lease of another, joins no load, and gets no old value for a failed load", async () => {
    const cache = open();
    const token = await write();
    await redis.admin.set("lock:fill:{k}", "other:1", "PX", 60_000);
    expect(await cache.fetch(read, () => "mine", { token })).toBe("mine");
    const now = Math.floor(await redis.time());
    await redis.admin.set("k", JSON.stringify({ e: now - 1, o: now + 60_000, v: "old" }));
    await expect(cache.fetch(read, () => Promise.reject(new Error("the database is away")), { token })).rejects.toThrow("the database is away");
    await redis.admin.del("lock:fill:{k}", "k");
    const [began, may] = [signal(), signal()];
    const theirs = cache.fetch(read, async () => {
      began.resolve();
      await may.promise;
      return "theirs";
    });
    await began.promise;
    expect(await cache.fetch(read, () => "mine", { token })).toBe("mine");
    expect(await cache.fetchMany([read], () => new Map([["k", "many"]]), { token })).toEqual(new Map([["k", "many"]]));
    may.resolve();
    expect(await theirs).toBe("theirs");
  });

  test("a dead letter, and a state that is unknown", async () => {
    const cache = open();
    await cache.fetch(read, () => "stored");
    const token = await write();
    const { first } = parseToken(token).runs[0]!;
    await admin.query("DELETE FROM cache_outbox");
    await admin.query("INSERT INTO cache_outbox_dead (first_id, entity, entity_id, created_at, reason, error, map_version) VALUES (?, 'product', '42', UTC_TIMESTAMP(6), 'lookup_failed', '', '')", [first]);
    expect(await settled(pool, parseToken(token))).toMatchObject({ settled: false, error: "a row of the token is a dead letter: lookup_failed" });
    for (const value of ["1", "2"]) expect(await cache.fetch(read, () => value, { token })).toBe(value);
    expect(queries).toBe(1);
    const failing = open({ primary: { query: () => Promise.reject(new Error("the database is away")) } });
    expect(await failing.fetch(read, () => "3", { token })).toBe("3");
    expect(await open({ primary: undefined }).fetch(read, () => "4", { token })).toBe("4");
  });

  test("a token that has ended, and a text that is none, are ignored", async () => {
    const cache = open();
    await cache.fetch(read, () => "stored");
    const token = await write();
    const old = formatToken({ ...parseToken(token), made: parseToken(token).made - 301 });
    for (const text of [old, "", "no token", `${token}x`]) expect(await cache.fetch(read, never, { token: text })).toBe("stored");
  });
});

test("what is not text is no token", () => {
  for (const [text, what] of [[undefined, "undefined"], [7, "a number"]] as const) expect(() => parseToken(text as unknown as string)).toThrow(`parse token: ${what} is not text`);
});

test("sessions and servers whose answer says nothing are refused", async () => {
  const token = parseToken(await write());
  expect(await settled(admin, { ...token, source: "0".repeat(32) })).toMatchObject({ settled: false, error: "the token belongs to another outbox" });
  expect(await settled(admin, { ...token, runs: [], many: true })).toMatchObject({ settled: false, left: expect.any(Number) });
  const connection = await createConnection({ socketPath: mysql.socketPath, user: "root", database: "shop" });
  await connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
  await expect(settled(connection, token)).rejects.toThrow("READ COMMITTED");
  await connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  await connection.query("SET autocommit = 0");
  await expect(settled(connection, token)).rejects.toThrow("autocommit");
  await connection.end();
  await admin.query("SET GLOBAL read_only = 1");
  await expect(settled(admin, token)).rejects.toThrow("read-only");
  await admin.query("SET GLOBAL read_only = 0");
});
