// What a reader does by docs/protocol.md, on a real Redis: also the faults that the judge of readers
// does not find, see lab/conform/README.md.
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { type CacheOptions, type Load, type Read, readOf } from "../src/index.js";
import { RedisServer, cacheOf, connector, eventually, libraries, proxyTo, signal, slow } from "./redis.js";

let server: RedisServer;

beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());
beforeEach(async () => {
  await server.admin.flushall();
});

/** Returns what the key has, and for how long. */
async function stored(key: string) {
  const [text, px] = await Promise.all([server.admin.get(key), server.admin.pttl(key)]);
  return { ...JSON.parse(text!), px };
}

/** Stores an entry as another reader would. `e` is ms from now; less than a second is within the error of a reader's clock. */
async function store(key: string, fields: { e?: number; s?: number; o?: number; t?: Record<string, string>; v?: unknown; n?: number; c?: string }, px = 600_000) {
  const now = Math.floor(await server.time());
  const later = (ms: number | undefined) => (ms === undefined ? undefined : now + ms);
  const entry = { ...fields, e: now + (fields.e ?? px), s: later(fields.s), o: later(fields.o) };
  await server.admin.set(key, JSON.stringify(entry), "PX", px);
}

const never = () => Promise.reject(new Error("nothing is to be loaded"));

describe.each(libraries)("with %s", (library) => {
  const open = (options = {}) => cacheOf(connector(library, server.port), options);

  test("stores an entry under a lease, and finds it", async () => {
    const cache = open();
    const read = readOf<{ id: number }>("shop:product:42", { ttl: 60_000, tags: ["category:7"] });
    const before = await server.time();
    let lease = "";
    const loaded = await cache.fetchResult(read, async () => {
      lease = (await server.admin.get("lock:fill:{shop:product:42}"))!;
      return { id: 42 };
    });
    expect(loaded).toEqual({ value: { id: 42 }, source: "loader", stale: false });
    expect(await cache.fetchResult(read, never)).toEqual({ value: { id: 42 }, source: "redis", stale: false });
    const { e, b, s, v, t, px } = await stored("shop:product:42");
    expect(lease.split(":")[1]).toBe(String(b));
    expect(v).toEqual({ id: 42 });
    expect(t).toEqual({ "category:7": await server.admin.get("stamp:category:7") });
    expect(s - e).toBe(6000);
    expect(px - 6000).toBeGreaterThan(60_000 * 0.85 - 10_000);
    expect(px - 6000).toBeLessThanOrEqual(60_000 * 1.15);
    expect(e - before).toBeGreaterThanOrEqual(60_000 * 0.85 - 1);
    expect(e - before).toBeLessThanOrEqual(60_000 * 1.15 + 10_000);
    expect(await server.admin.keys("lock:*")).toEqual([]);
    expect(cache.stats()).toMatchObject({ hits: 1, misses: 1, loads: 1, sets: 1, reads: { other: { hits: 1, misses: 1 } } });
  });

  test("a tag version lives an hour longer than the longest entry, a negative result for at most two minutes", async () => {
    const cache = open();
    const day = 86_400_000;
    await cache.fetch(readOf<string | undefined>("none", { ttl: day, jitter: 0, stale: 1000, staleOnError: day, tags: ["a"] }), () => undefined);
    const { n, v, px, s, o } = await stored("none");
    expect({ n, v, s, o }).toEqual({ n: 1, v: null });
    expect(px).toBeGreaterThan(110_000);
    expect(px).toBeLessThanOrEqual(120_000);
    const stamp = await server.admin.pttl("stamp:a");
    expect(stamp).toBeGreaterThan(2 * day + 3_600_000 - 10_000);
    expect(stamp).toBeLessThanOrEqual(2 * day + 3_600_000);
    expect(await cache.fetchResult(readOf("none", { ttl: day, tags: ["a"] }), never)).toEqual({ value: undefined, source: "redis", stale: false });
    await cache.fetch(readOf<string | undefined>("short", { ttl: 5000, jitter: 0 }), () => undefined);
    expect((await stored("short")).px).toBeLessThanOrEqual(5000);
    await cache.fetch(readOf<string | undefined>("not kept", { ttl: 5000, negative: 0 }), () => undefined);
    expect(await server.admin.keys("*not kept*")).toEqual([]);
  });

  test("times are those of Redis, whatever the clock of the machine says", async () => {
    const clock = Date.now() - 7_200_000;
    vi.useFakeTimers({ toFake: ["Date"], now: clock });
    try {
      const cache = open();
      const before = await server.time();
      const read = readOf("k", { ttl: 60_000, jitter: 0, stale: 0 });
      expect(await cache.fetch(read, () => 1)).toBe(1);
      expect((await stored("k")).e - before).toBeGreaterThanOrEqual(60_000 - 1);
      vi.setSystemTime(clock + 86_400_000); // a step
      expect(await cache.fetch(read, never)).toBe(1);
      await store("expired", { e: -1000, v: "old" });
      expect(await cache.fetch(readOf("expired", { ttl: 1000 }), () => "new")).toBe("new");
    } finally {
      vi.useRealTimers();
    }
  });

  test("an UNLINK during a load keeps its value out", async () => {
    const cache = open();
    const read = readOf("k", { ttl: 60_000 });
    const value = await cache.fetch(read, async () => {
      await server.unlink("k");
      return "old";
    });
    expect([value, await server.admin.get("k"), cache.stats().refused]).toEqual(["old", null, 1]);
    expect(await cache.fetch(read, () => "new")).toBe("new");
  });

  test("a tombstone keeps values out, of keys and of tags", async () => {
    const cache = open();
    await server.admin.mset("lock:hold:{k}", "1", "lock:hold:{stamp:a}", "1");
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => 1)).toBe(1);
    expect(await cache.fetch(readOf("tagged", { ttl: 60_000, tags: ["a"] }), () => 2)).toBe(2);
    expect((await server.admin.keys("*")).toSorted()).toEqual(["lock:hold:{k}", "lock:hold:{stamp:a}"]);
  });

  test("tags of an entry count that the read does not have, and tags that the entry lacks", async () => {
    const cache = open();
    const tagged = readOf<string>("k", { ttl: 60_000, tags: ["a"] });
    const bare = readOf<string>("k", { ttl: 60_000 });
    await cache.fetch(tagged, () => "first");
    expect(await cache.fetch(bare, never)).toBe("first");
    await server.admin.unlink("stamp:a");
    expect(await cache.fetch(bare, () => "second")).toBe("second");
    expect(await cache.fetch(tagged, () => "third")).toBe("third"); // the entry has no tag
    expect(await cache.fetch(bare, never)).toBe("third");
    await server.unlink("stamp:a");
    expect(await cache.fetch(tagged, () => "fourth")).toBe("fourth");
  });

  test("names of keys with braces, and keys that cannot have a lease", async () => {
    const cache = open();
    const leases: string[] = [];
    const load = async () => {
      leases.push(...(await server.admin.keys("lock:*")));
      return 1;
    };
    for (const key of ["user:{1000}:cart", "a{b}", "a{{b}}", "{a}{b}", "plain"]) await cache.fetch(readOf(key, { ttl: 60_000 }), load);
    expect(leases).toEqual(["user:{1000}:cart", "a{b}", "a{{b}}", "{a}{b}", "{plain}"].map((name) => `lock:fill:${name}`));
    for (const key of ["", "{a}", "a}b", "a{}b", "\ud800"]) expect(await cache.fetch(readOf(key, { ttl: 60_000 }), load)).toBe(1);
    expect(await cache.fetch(readOf("odd tag", { ttl: 60_000, tags: ["\ud800"] }), load)).toBe(1);
    expect(leases).toHaveLength(5);
    expect(await server.admin.dbsize()).toBe(5);
  });

  test("each load has a token of its own", async () => {
    const cache = open();
    const tokens = new Set<string>();
    for (const key of ["a", "b", "a"]) {
      await cache.fetch(readOf(key, { ttl: 60_000 }), async ({ skip }: Load) => {
        tokens.add((await server.admin.get(`lock:fill:{${key}}`))!.split(":")[0]!);
        skip();
      });
    }
    expect(tokens.size).toBe(3);
  });

  test("entries of format 2 and gzip are read", async () => {
    const cache = open();
    const e = Math.floor(await server.time()) + 60_000;
    await server.admin.set("packed", Buffer.concat([Buffer.from(`{"f":2,"e":${e},"c":"gzip"}\n`), gzipSync('{"id":42}')]));
    await server.admin.set("bare", `{"f":2,"e":${e}}\n{"id":43}`);
    await store("text", { c: "gzip", v: gzipSync('{"id":44}').toString("base64") });
    for (const [key, id] of [["packed", 42], ["bare", 43], ["text", 44]] as const) {
      expect(await cache.fetch(readOf<object>(key, { ttl: 1000 }), never)).toEqual({ id });
    }
  });

  test("entries of other formats and codecs, and other types, stay", async () => {
    const cache = open();
    await store("codec", { c: "msgpack", v: "gaJpZCoK/w==" });
    await server.admin.set("format", '{"f":3}\nanything');
    await server.admin.rpush("list", "x");
    const all = async () => [await server.admin.get("codec"), await server.admin.get("format"), await server.admin.lrange("list", 0, -1), await server.admin.keys("lock:*")];
    const before = await all();
    for (const round of [1, 2]) for (const key of ["codec", "format", "list"]) expect(await cache.fetch(readOf(key, { ttl: 60_000 }), () => round)).toBe(round);
    const many = ["codec", "format", "list"].map((key) => readOf<number>(key, { ttl: 60_000 }));
    expect([...(await cache.fetchMany(many, (missing) => new Map(missing.map(({ key }) => [key, 3])))).values()]).toEqual([3, 3, 3]);
    expect(await all()).toEqual(before);
  });

  test("an entry that cannot be read is replaced under a lease with the hash of its bytes", async () => {
    const cache = open();
    for (const bytes of [Buffer.from("{\"e\":1,\"v\":\xff}", "latin1"), Buffer.from("old"), Buffer.alloc(0)]) {
      await server.admin.set("k", bytes);
      expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => "new")).toBe("new");
      expect((await stored("k")).v).toBe("new");
    }
  });

  test("integers beyond 2^53 are not rounded", async () => {
    const [numbers, bigints] = [open(), open({ integers: "bigint" })];
    const read = readOf<unknown>("k", { ttl: 60_000 });
    const now = Math.floor(await server.time());
    const text = `{"e":${now + 60_000},"v":{"id":9007199254740993,"low":-9007199254740993,"small":7,"text":"9007199254740993"}}`;
    await server.admin.set("k", text);
    expect(await bigints.fetch(read, never)).toEqual({ id: 9007199254740993n, low: -9007199254740993n, small: 7, text: "9007199254740993" });
    expect(await numbers.fetch(read, () => ({ id: "9007199254740993" }))).toEqual({ id: "9007199254740993" });
    const large = { id: 2n ** 63n, small: 7n, float: 1e300 };
    expect(await bigints.fetch(readOf<unknown>("big", { ttl: 60_000 }), () => large)).toEqual({ ...large, small: 7 });
    expect(await bigints.fetch(readOf<unknown>("big", { ttl: 60_000 }), never)).toEqual({ ...large, small: 7 });
    expect(await server.admin.get("big")).toContain('{"id":9223372036854775808,"small":7,"float":1e+300}');
    // a number that JavaScript has written is the same number again
    for (const n of [2 ** 53, 2 ** 69, -(2 ** 60), 1e20, 123456789012345680000]) {
      await numbers.fetch(readOf<unknown>(`n${n}`, { ttl: 60_000 }), () => [n]);
      expect(await numbers.fetch(readOf<unknown>(`n${n}`, { ttl: 60_000 }), never)).toEqual([n]);
    }
    // which has no JSON without the option
    expect(await numbers.fetch(readOf<unknown>("none", { ttl: 60_000 }), () => 1n)).toBe(1n);
    expect([await server.admin.get("none"), numbers.stats().errors]).toEqual([null, 1]);
  });

  test("the caller that loads gets what its JSON says, as others do", async () => {
    const cache = open();
    const read = readOf<unknown>("k", { ttl: 60_000 });
    const made = { at: new Date(0), none: undefined, list: [undefined], map: {} };
    const seen = { at: "1970-01-01T00:00:00.000Z", list: [null], map: {} };
    expect(await cache.fetch(read, () => made)).toStrictEqual(seen);
    expect(await cache.fetch(read, never)).toStrictEqual(seen);
    expect(await cache.fetch(readOf<unknown>("null", { ttl: 60_000 }), () => null)).toBe(null);
    expect(await cache.fetch(readOf<unknown>("null", { ttl: 60_000 }), never)).toBe(null);
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    expect(await cache.fetch(readOf<unknown>("cycle", { ttl: 60_000 }), () => cycle)).toBe(cycle);
    expect(await server.admin.keys("*cycle*")).toEqual([]);
  });

  test("a reader waits for the lease of another, with pauses", async () => {
    const cache = open();
    await cache.fetch(readOf("other", { ttl: 1000 }), () => 1); // the scripts are loaded
    await server.admin.set("lock:fill:{k}", "other:1", "PX", 400);
    await server.admin.config("RESETSTAT");
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => 1)).toBe(1);
    const asked = await server.calls("evalsha");
    expect(asked).toBeGreaterThan(3);
    expect(asked).toBeLessThan(20); // 1, 2, 4, 8, 16, 32, 50, 50 ... ms at least
    expect((await stored("k")).v).toBe(1);
  });

  test("the fifth holder of a lease is not waited for", async () => {
    const cache = open();
    let holder = 0;
    let over = false;
    const holding = (async () => {
      // each of these is extended by none, so a longer TTL is another holder
      while (!over) await server.admin.set("lock:fill:{k}", `${holder++}:1`, "PX", 10_000 + holder);
    })();
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => 1)).toBe(1);
    over = true;
    await holding;
    expect(await server.admin.get("k")).toBe(null);
    expect(cache.stats()).toMatchObject({ loads: 1, sets: 0 });
  });

  test("a value that another reader has stored meanwhile is used", async () => {
    const cache = open();
    await server.admin.set("lock:fill:{k}", "other:1", "PX", 10_000);
    const value = cache.fetchResult(readOf<string>("k", { ttl: 60_000 }), never);
    await eventually("the reader waits", async () => (await server.calls("evalsha")) > 0);
    await store("k", { v: "theirs" });
    expect(await value).toEqual({ value: "theirs", source: "redis", stale: false });
  });

  test("a load that fails gives its lease back, and leaves the old entry", async () => {
    const cache = open();
    await store("k", { e: -1000, v: "old" });
    await expect(cache.fetch(readOf("k", { ttl: 1000 }), () => Promise.reject(new Error("the database is away")))).rejects.toThrow("the database is away");
    expect(await server.admin.keys("*")).toEqual(["k"]);
    expect(cache.stats()).toMatchObject({ loads: 1, loadErrors: 1 });
  });

  test("a load that succeeds and stores nothing removes the old entry with its lease", async () => {
    const cache = open();
    await store("k", { e: -1000, v: "old" });
    expect(await cache.fetch(readOf("k", { ttl: 1000 }), ({ skip }: Load) => (skip(), "new"))).toBe("new");
    expect(await server.admin.keys("*")).toEqual([]);
  });

  test("stale-while-revalidate: one caller loads, others get the expired value", async () => {
    const cache = open();
    const read = readOf<string>("k", { ttl: 60_000, stale: 60_000 });
    await store("k", { e: -1000, s: 60_000, v: "old" });
    const [began, may] = [signal(), signal()];
    const load = async () => {
      began.resolve();
      await may.promise;
      return "new";
    };
    const first = await Promise.all([cache.fetchResult(read, load), cache.fetchResult(read, load)]);
    expect(first).toEqual(Array(2).fill({ value: "old", source: "redis", stale: true }));
    await began.promise;
    expect(await cache.fetch(read, never)).toBe("old");
    may.resolve();
    await eventually("the new value", async () => (await cache.fetch(read, never)) === "new");
    expect(cache.stats()).toMatchObject({ loads: 1, misses: 0 });
    await store("fails", { e: -1000, s: 60_000, v: "old" });
    const failing = readOf<string>("fails", { ttl: 60_000, stale: 60_000 });
    expect(await cache.fetch(failing, () => Promise.reject(new Error("the database is away")))).toBe("old");
    await eventually("the load has failed", () => cache.stats().loadErrors === 1);
    expect(await cache.fetch(failing, never)).toBe("old"); // a pause after the failure
    await cache.fetch(readOf("other", { ttl: 60_000 }), () => 1);
    expect(cache.stats().loads).toBe(3);
  });

  test("stale-on-error: an expired value replaces a failed load, until an UNLINK", async () => {
    const cache = open();
    const read = readOf<string>("k", { ttl: 60_000, stale: 0, staleOnError: 60_000 });
    await store("k", { e: -1000, o: 60_000, v: "old" });
    const fails = () => Promise.reject(new Error("the database is away"));
    expect(await cache.fetchResult(read, fails)).toEqual({ value: "old", source: "redis", stale: true });
    expect(await cache.fetchResult(read, never)).toEqual({ value: "old", source: "redis", stale: true }); // a pause after the failure
    expect(cache.stats().loads).toBe(1);
    await server.unlink("k");
    await expect(cache.fetch(read, fails)).rejects.toThrow("the database is away");
    await store("k", { e: -1000, o: 60_000, v: "old" });
    const other = open();
    const unlinked = async () => {
      await server.unlink("k");
      return fails();
    };
    await expect(other.fetch(read, unlinked)).rejects.toThrow("the database is away");
    await store("k", { e: -1000, o: 60_000, v: "old" });
    const replaced = async () => {
      await store("k", { e: -1000, o: 60_000, v: "another" });
      return fails();
    };
    await expect(open().fetch(read, replaced)).rejects.toThrow("the database is away");
  });

  test("callers share a load, also its error", async () => {
    const cache = open();
    const read = readOf<number>("k", { ttl: 60_000 });
    let loads = 0;
    const values = await Promise.all(Array.from({ length: 100 }, () => cache.fetch(read, () => ++loads)));
    expect(values).toEqual(Array(100).fill(1));
    const failing = readOf<number>("f", { ttl: 60_000 });
    const errors = await Promise.allSettled(Array.from({ length: 100 }, () => cache.fetch(failing, () => Promise.reject(new Error(`${++loads}`)))));
    expect(new Set(errors.map((error) => (error as PromiseRejectedResult).reason.message))).toEqual(new Set(["2"]));
  });

  test("a thousand callers of each of three caches make one load", async () => {
    const read = readOf<number>("k", { ttl: 60_000 });
    let loads = 0;
    const callers = [open(), open(), open()].flatMap((cache) => Array.from({ length: 1000 }, () => cache.fetch(read, () => ++loads)));
    expect(new Set(await Promise.all(callers))).toEqual(new Set([1]));
    expect(loads).toBe(1);
  });

  test.each([["the key", "k"], ["a tag", "stamp:a"]])("a caller that came after an invalidation of %s does not get what was loaded before it", async (_, name) => {
    const cache = open();
    const read = readOf<string>("k", { ttl: 60_000, tags: ["a"] });
    const [began, may] = [signal(), signal()];
    const first = cache.fetch(read, async () => {
      began.resolve();
      await may.promise;
      return "old";
    });
    await began.promise;
    await server.unlink(name);
    const second = cache.fetch(read, () => "new");
    await cache.fetch(readOf("other", { ttl: 1000 }), () => 1); // by then, the second one has read
    may.resolve();
    expect([await first, await second]).toEqual(["old", "new"]);
    expect(await cache.fetch(read, never)).toBe("new");
  });

  test("tags that only the loader names: the second value is stored", async () => {
    const cache = open();
    const read = readOf<number>("k", { ttl: 60_000 });
    let loads = 0;
    const load = ({ tag }: Load) => (tag("category:7"), ++loads);
    expect(await cache.fetch(read, load)).toBe(1);
    expect(await server.admin.get("k")).toBe(null);
    expect(await cache.fetch(read, load)).toBe(2);
    expect(await cache.fetch(read, never)).toBe(2);
    await server.unlink("stamp:category:7");
    expect(await cache.fetch(read, load)).toBe(3); // the entry had the tag, so its version is from before this load
    expect(await cache.fetch(read, never)).toBe(3);
    const other = readOf<number>("other", { ttl: 60_000 });
    await server.unlink("stamp:category:7");
    expect(await cache.fetch(other, load)).toBe(4);
    expect(await server.admin.get("other")).toBe(null);
    expect(await cache.fetch(readOf("unknown", { ttl: 1000 }), ({ tag }: Load) => (tag(""), 1))).toBe(1);
    expect(await server.admin.get("unknown")).toBe(null);
  });

  test("a loader bounds the TTL", async () => {
    const cache = open();
    await cache.fetch(readOf("k", { ttl: 600_000, stale: 600_000, staleOnError: 600_000 }), ({ ttl }: Load) => (ttl(5000), 1));
    const { px, s, o } = await stored("k");
    expect(px).toBeLessThanOrEqual(5000);
    expect([s, o]).toEqual([undefined, undefined]);
    await cache.fetch(readOf("none", { ttl: 600_000 }), ({ ttl }: Load) => (ttl(0), 1));
    expect(await server.admin.get("none")).toBe(null);
  });

  test("fetchMany: one round trip, one load of what is missing, one call for all", async () => {
    const trips: number[] = [];
    const cache = open({ hooks: { redis: (commands: number) => void trips.push(commands) } });
    const reads = ["a", "b", "c", "a"].map((key) => readOf<string>(key, { ttl: 60_000, tags: ["all"] }));
    await cache.fetch(reads[1]!, () => "b1");
    trips.length = 0;
    const loaded: string[][] = [];
    const load = (missing: Read<string>[]) => {
      loaded.push(missing.map(({ key }) => key));
      return new Map([["a", "a1"]]);
    };
    expect(await cache.fetchMany(reads, load)).toEqual(new Map([["a", "a1"], ["b", "b1"]]));
    expect(loaded).toEqual([["a", "c"]]);
    expect(trips).toEqual([1, 4, 4]); // an MGET; two leases and versions; two fills and versions
    expect(await cache.fetchMany(reads, never)).toEqual(new Map([["a", "a1"], ["b", "b1"]]));
    expect(trips).toHaveLength(4);
    expect(await cache.fetchMany([], never)).toEqual(new Map());
    const others = ["x", "y"].map((key) => readOf<string>(key, { ttl: 60_000 }));
    await expect(cache.fetchMany(others, () => Promise.reject(new Error("the database is away")))).rejects.toThrow("the database is away");
    expect(await server.admin.keys("lock:*")).toEqual([]);
  });

  test("fetchMany: what others load is waited for while the rest is loaded", async () => {
    const cache = open();
    await server.admin.set("lock:fill:{a}", "other:1", "PX", 10_000);
    const reads = ["a", "b"].map((key) => readOf<string>(key, { ttl: 60_000 }));
    const loaded: string[][] = [];
    const values = cache.fetchMany(reads, async (missing) => {
      loaded.push(missing.map(({ key }) => key));
      await store("a", { v: "theirs" });
      return new Map(missing.map(({ key }) => [key, `${key}1`]));
    });
    expect(await values).toEqual(new Map([["a", "theirs"], ["b", "b1"]]));
    expect(loaded).toEqual([["b"]]);
  });

  test("a signal ends the wait of its caller alone", async () => {
    const cache = open();
    const read = readOf<string>("k", { ttl: 60_000 });
    const leaving = new AbortController();
    const [began, may] = [signal<Load>(), signal()];
    const load = async (given: Load) => {
      began.resolve(given);
      await may.promise;
      return "new";
    };
    const [first, second] = [cache.fetch(read, load, { signal: leaving.signal }), cache.fetch(read, load)];
    const { signal: limit } = await began.promise;
    leaving.abort(new Error("the user has left"));
    await expect(first).rejects.toThrow("the user has left");
    expect(limit.aborted).toBe(false);
    may.resolve();
    expect(await second).toBe("new");
    await expect(cache.fetch(read, never, { signal: leaving.signal })).rejects.toThrow("the user has left");
    const warnings: Error[] = [];
    const warn = (warning: Error) => void warnings.push(warning);
    process.on("warning", warn);
    onTestFinished(() => void process.off("warning", warn));
    const reads = Array.from({ length: 100 }, (_, i) => readOf<number>(`${i}`, { ttl: 60_000 }));
    await cache.fetchMany(reads, () => new Map(), { signal: new AbortController().signal });
    expect(warnings).toEqual([]);
  });

  test("a load ends after its time, and with the cache", async () => {
    const cache = open({ loadTimeout: 20 });
    const aborted = signal<Error>();
    const hangs = ({ signal: limit }: Load) => new Promise<never>(() => limit.addEventListener("abort", () => aborted.resolve(limit.reason as Error)));
    await expect(cache.fetch(readOf("k", { ttl: 1000 }), hangs)).rejects.toMatchObject({ name: "LoadTimeoutError" });
    expect((await aborted.promise).name).toBe("LoadTimeoutError");
    expect(await server.admin.keys("*")).toEqual([]);
    const closing = open();
    const began = signal();
    const value = closing.fetch(readOf("k", { ttl: 1000 }), (load: Load) => (began.resolve(), hangs(load)));
    const refused = expect(value).rejects.toMatchObject({ name: "ClosedError" });
    await began.promise;
    await server.admin.set("lock:fill:{taken}", "other:1", "PX", 60_000);
    const waits = expect(closing.fetch(readOf("taken", { ttl: 1000 }), never)).rejects.toMatchObject({ name: "ClosedError" });
    await server.admin.config("RESETSTAT");
    await eventually("it waits for the lease", async () => (await server.calls("evalsha")) > 3);
    await closing.close();
    await Promise.all([refused, waits]);
    expect(await server.admin.keys("*")).toEqual(["lock:fill:{taken}"]);
    await expect(closing.fetch(readOf("k", { ttl: 1000 }), never)).rejects.toMatchObject({ name: "ClosedError" });
    expect(closing.healthy()).toMatchObject({ name: "ClosedError" });
  });

  test("a read without invalidations is loaded and not cached", async () => {
    const warnings: unknown[] = [];
    const cache = open({ logger: { warn: (...message: unknown[]) => warnings.push(message) } });
    const read = { ...readOf<number>("k", { ttl: 1000 }), error: "the var env of the map is empty" };
    expect([await cache.fetch(read, () => 1), await cache.fetch(read, () => 2)]).toEqual([1, 2]);
    expect(await server.admin.keys("*")).toEqual([]);
    expect(warnings).toEqual([["a value is loaded and not cached: no invalidation reaches it", read.error]]);
    expect(cache.stats().uncached).toBe(2);
  });

  test("hooks see reads, loads and round trips", async () => {
    const seen: unknown[] = [];
    const see = (name: string) => (what: Read | number) => {
      seen.push([name, typeof what === "number" ? what : what.key]);
      return (...end: unknown[]) => void seen.push([`${name} ended`, ...end]);
    };
    const cache = open({ hooks: { fetch: see("fetch"), load: see("load"), redis: see("redis") } });
    await cache.fetch(readOf("k", { ttl: 60_000 }), () => 1);
    expect(seen).toEqual([
      ["fetch", "k"],
      ["redis", 1],
      ["redis ended", undefined],
      ["redis", 1],
      ["redis ended", undefined],
      ["load", "k"],
      ["load ended", undefined],
      ["redis", 1],
      ["redis ended", undefined],
      ["fetch ended", undefined, "loader", false],
    ]);
  });

  test("one key that the user may not read does not fail the others of its tick", async () => {
    await server.admin.call("ACL", "SETUSER", "shop", "on", ">secret", "-@all", "+get", "+mget", "+evalsha", "+eval", "+time", "+hget", "+hgetall", "+set", "+unlink", "~shop:*", "~lock:*", "%R~unstale:alive*", "+pttl");
    const cache = cacheOf(connector(library, server.port, false, "shop:secret@"));
    await store("shop:1", { v: "one" });
    const [one, other] = await Promise.all(["shop:1", "other"].map((key) => cache.fetchResult(readOf(key, { ttl: 60_000 }), () => "loaded")));
    expect([one!.value, other!.value]).toEqual(["one", "loaded"]);
    expect(await cache.fetch(readOf("shop:2", { ttl: 60_000 }), () => "two")).toBe("two");
    expect(await cache.fetch(readOf("shop:2", { ttl: 60_000 }), never)).toBe("two");
  });

  test("a burst goes in several round trips, each with its own time, and is stored", async () => {
    const trips: number[] = [];
    const cache = cacheOf(slow(connector(library, server.port), 0.2), { timeout: 1000, hooks: { redis: (commands: number) => void trips.push(commands) } });
    const reads = Array.from({ length: 6000 }, (_, i) => readOf<number>(`${i}`, { ttl: 60_000 }));
    expect(await cache.fetchMany(reads.slice(0, 1), () => new Map([["0", 0]]))).toEqual(new Map([["0", 0]]));
    await Promise.all(reads.map((read, i) => cache.fetch(read, () => i)));
    expect(cache.stats()).toMatchObject({ sets: 6000, errors: 0 });
    expect(Math.max(...trips)).toBeLessThanOrEqual(500);
    trips.length = 0;
    expect(await Promise.all(reads.map((read) => cache.fetch(read, never)))).toEqual(reads.map((_, i) => i));
    expect(trips).toEqual(Array(12).fill(1));
  });

  test("reads of large values go in several round trips, as far as sizes are known; one tick of small ones in one", async () => {
    let trips = 0;
    const cache = open({ hooks: { redis: () => void trips++ } });
    const reads = Array.from({ length: 64 }, (_, i) => readOf<string>(`${i}`, { ttl: 60_000 }));
    const all = async (value: string) => {
      await Promise.all(reads.map((read) => cache.fetch(read, () => value)));
      trips = 0;
      expect(await Promise.all(reads.map((read) => cache.fetch(read, never)))).toEqual(Array(64).fill(value));
      return trips;
    };
    expect(await all("small")).toBe(1);
    await server.admin.flushall();
    expect(await all("x".repeat(20_000))).toBe(6); // 12 in each
  });

  test("reads take turns with requests for leases that others have", async () => {
    await server.admin.set("k", JSON.stringify({ e: Math.floor(await server.time()) + 60_000, v: "stored" }));
    let trips = 0;
    const hooks = { redis: () => void trips++ };
    const cache = cacheOf(slow(connector(library, server.port), 0.1), { timeout: 5000, lease: 2000, hooks });
    const reads = Array.from({ length: 4000 }, (_, i) => readOf<number>(`${i}`, { ttl: 60_000 }));
    await Promise.all(reads.map(({ key }) => server.admin.set(`lock:fill:{${key}}`, "another", "PX", 10_000)));
    const waiting = Promise.all(reads.map((read, i) => cache.fetch(read, () => i)));
    await eventually("requests for leases wait", () => cache.stats().misses === 4000);
    trips = 0;
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), never)).toBe("stored");
    expect(trips).toBeLessThan(6);
    await waiting;
  });

  test("a refusal that has ended is no reason for a tag that is held", async () => {
    await server.admin.call("ACL", "SETUSER", "later", "reset", "on", ">secret", "~k", "~lock:*", "~unstale:*", "%R~stamp:*", "+@all");
    const cache = cacheOf(connector(library, server.port, false, "later:secret@"));
    await server.admin.set("lock:fill:{k}", "another", "PX", 10_000);
    const value = cache.fetch(readOf("k", { ttl: 60_000, tags: ["a"] }), () => 1);
    await eventually("the version is refused", () => cache.healthy() !== undefined);
    await server.admin.set("lock:hold:{stamp:a}", "");
    await server.admin.call("ACL", "SETUSER", "later", "~*");
    await eventually("no version is refused", () => cache.healthy() === undefined);
    await server.admin.unlink("lock:fill:{k}");
    expect(await value).toBe(1);
    expect(cache.stats()).toMatchObject({ sets: 0, errors: 0 });
  });

  test("what Redis refuses is a reason for healthy, counted and logged", async () => {
    const logged: string[] = [];
    const options = { logger: { warn: (message: string) => void logged.push(message) } };
    const read = readOf("k", { ttl: 60_000, tags: ["a"] });
    const refuses = async (user: string, rules: string[], kind: string, cause: string) => {
      await server.admin.call("ACL", "SETUSER", user, "reset", "on", ">secret", "~*", "+@all", ...rules);
      const cache = cacheOf(connector(library, server.port, false, `${user}:secret@`), options);
      logged.length = 0;
      for (let i = 0; i < 6; i++) expect(await cache.fetch(read, () => i)).toBe(i);
      expect(cache.healthy()?.message).toMatch(`values are not cached: Redis refuses a ${kind}: ${cause}`);
      expect(logged).toContain(`values are not cached: Redis refuses a ${kind}`);
      expect(logged.length).toBeLessThan(3);
      expect(cache.stats()).toMatchObject({ loads: 6, sets: 0, errors: 6 });
      await server.admin.call("ACL", "SETUSER", user, "~*", "+@all");
      await cache.fetch(read, () => 1);
      await cache.fetch(read, () => 1);
      expect(cache.healthy()).toBe(undefined);
      await server.admin.flushall();
    };
    await refuses("reads", ["-get", "-mget"], "read", "NOPERM");
    await refuses("keys", ["resetkeys", "~shop:*"], "read", "NOPERM");
    await refuses("leases", ["resetkeys", "~k", "~stamp:*", "~lock:*stamp*", "~unstale:*"], "lease", "NOPERM");
    await refuses("tags", ["resetkeys", "~k", "%R~stamp:*", "~lock:*", "~unstale:*"], "tag version", "");
    await server.admin.call("ACL", "SETUSER", "values", "reset", "on", ">secret", "~*", "+@all");
    const fills = cacheOf(connector(library, server.port, false, "values:secret@"));
    await fills.fetch(read, async () => (await server.admin.call("ACL", "SETUSER", "values", "resetkeys"), 1));
    expect(fills.healthy()?.message).toMatch("Redis refuses a value: NOPERM");
    expect(fills.stats()).toMatchObject({ sets: 0, errors: 1 });
    await server.admin.flushall();
    await server.admin.config("SET", "min-replicas-to-write", "1");
    try {
      const cache = open();
      expect(await cache.fetch(read, () => 1)).toBe(1);
      expect(cache.healthy()?.message).toMatch("Redis refuses a lease: NOREPLICAS");
      expect(cache.stats().errors).toBe(1);
      await server.admin.config("SET", "min-replicas-to-write", "0");
      await cache.fetch(read, () => 1);
      expect(cache.healthy()).toBe(undefined);
    } finally {
      await server.admin.config("SET", "min-replicas-to-write", "0");
    }
  });

  test("a logger and hooks that throw end no call", async () => {
    const fails = (): never => {
      throw new Error("a mistake");
    };
    const logged: string[] = [];
    const warn = (message: string) => {
      logged.push(message);
      fails();
    };
    const read = readOf<number>("k", { ttl: 60_000 });
    const refused = { ...read, error: "the map refuses it" };
    const ends = () => fails;
    const rejects = (() => Promise.reject(new Error("a mistake"))) as () => never;
    for (const hook of [fails, ends, rejects]) {
      await server.admin.flushall();
      logged.length = 0;
      const hooks: CacheOptions["hooks"] = { fetch: hook, load: hook, redis: hook };
      const cache = open({ logger: { warn }, hooks });
      expect([await cache.fetch(read, () => 1), await cache.fetch(read, never), await cache.fetch(refused, () => 2)]).toEqual([1, 1, 2]);
      await expect(cache.fetch(refused, fails)).rejects.toThrow("a mistake");
      expect(logged).toEqual(["a hook of the cache throws, which is ignored", "a value is loaded and not cached: no invalidation reaches it"]);
    }
  });

  test("fetchMany: reads that the map refuses stay apart", async () => {
    const cache = open();
    const refused = ["a", "b"].map((id) => ({ ...readOf<string>("", { ttl: 60_000 }), error: `the id is ${id}` }));
    const loaded: (string | undefined)[][] = [];
    const load = (missing: Read<string>[]) => {
      loaded.push(missing.map(({ key, error }) => error ?? key));
      return new Map(missing.map(({ key, error }) => [key, error ?? "stored"]));
    };
    expect(await cache.fetchMany([...refused, readOf<string>("k", { ttl: 60_000 })], load)).toEqual(new Map([["k", "stored"]]));
    expect(loaded.toSorted()).toEqual([["k"], ["the id is a"], ["the id is b"]]);
    expect(await cache.fetchMany(refused.slice(1), load)).toEqual(new Map([["", "the id is b"]]));
    loaded.length = 0;
    const unset = () => ({ ...readOf<string>("shop::1", { ttl: 60_000 }), error: "a variable is not set" });
    expect(await cache.fetchMany([unset(), unset()], load)).toEqual(new Map([["shop::1", "a variable is not set"]]));
    expect(loaded).toEqual([["a variable is not set"]]);
  });

  test("a value whose toJSON throws is returned, and not stored", async () => {
    const logged: [string, Error][] = [];
    const cache = open({ logger: { warn: (message: string, error: Error) => void logged.push([message, error]) } });
    const value = {
      toJSON() {
        throw new Error("a mistake");
      },
    };
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => value)).toBe(value);
    expect(logged.map(([message, error]) => [message, error.message])).toEqual([["a value cannot be stored", 'the value of the read other of the key "k": a mistake']]);
    expect(cache.stats().errors).toBe(1);
    expect(await server.admin.keys("*")).toEqual([]);
  });

  test("errors name the place and the fix", async () => {
    const logged: [string, Error][] = [];
    const cache = open({ loadTimeout: 20, logger: { warn: (message: string, error: Error) => void logged.push([message, error]) } });
    const read = readOf<unknown>("shop:1", { ttl: 60_000, name: "product" });
    const own = () => cache.fetch(read, () => cache.fetch(read, () => 1));
    await expect(own()).rejects.toThrow('the loader of the read product of the key "shop:1" took more than 20 ms; raise loadTimeout, or if a loader fetches its own key');
    expect(await cache.fetch(read, () => 1n)).toBe(1n);
    expect([logged[0]![0], logged[0]![1].message]).toEqual(["a value cannot be stored", 'the value of the read product of the key "shop:1": it has a bigint; set the option integers of the Cache to "bigint"']);
    const wrong = undefined as never;
    await expect(cache.fetch(wrong, () => 1)).rejects.toThrow("fetch: the first argument is not a read");
    await expect(cache.fetch({ ...read, tags: "abc" as never }, () => 1)).rejects.toThrow("fetch: the first argument is not a read");
    await expect(cache.fetch(read, wrong)).rejects.toThrow('fetch: the loader of the read product of the key "shop:1" is not a function');
    await expect(cache.fetchMany(wrong, () => new Map())).rejects.toThrow("fetchMany: the first argument must be a list of reads");
    await expect(cache.fetchMany([wrong], () => new Map())).rejects.toThrow("fetch: the first argument is not a read");
    expect(() => readOf(wrong, { ttl: 1 })).toThrow("readOf: the key is undefined: must be a string");
    expect(() => readOf("k", wrong)).toThrow('readOf("k"): the policy is undefined');
    expect(() => readOf("k", { ttl: 1, tags: "abc" as never })).toThrow('readOf("k"): tags is "abc": must be a list of strings');
  });

  test("scripts that Redis has lost are sent again", async () => {
    const cache = open();
    for (const round of [1, 2]) {
      await server.admin.script("FLUSH");
      await server.unlink("k");
      await cache.fetch(readOf("k", { ttl: 60_000, tags: ["a"] }), () => round);
      expect((await stored("k")).v).toBe(round);
    }
  });

  test("a lease is as short as the map's, from the same pipeline on", async () => {
    const cache = open();
    const write = async (lease: number) => server.admin.hset("unstale:alive", "shop", JSON.stringify({ t: Math.floor((await server.time()) * 1000), lease, map: "m" }));
    await write(10_000);
    await cache.fetch(readOf("a", { ttl: 60_000 }), () => 1);
    await write(3000); // the reader learns it with the lease, which is for 10 s
    let left = 0;
    await cache.fetch(readOf("b", { ttl: 60_000 }), async () => {
      left = await server.admin.pttl("lock:fill:{b}");
    });
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(3000);
    expect(cache.healthy()?.message).toMatch("the map's is 3000 ms");
    await cache.fetch(readOf("c", { ttl: 60_000 }), () => 1);
    expect(cache.stats().shortLeases).toBeGreaterThan(0);
  });

  test("a lease whose reply was lost is given back", async () => {
    const proxy = await proxyTo(server.port);
    const cache = cacheOf(connector(library, proxy.port), { lease: 60_000 });
    proxy.rule = (request) => (request.includes("lock:hold") ? "cut after" : "forward");
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => "loaded")).toBe("loaded");
    await eventually("the lease is given back", async () => (await server.admin.exists("lock:fill:{k}")) === 0);
    expect(await server.admin.get("k")).toBe(null);
  });

  test("a lease is given back whose request Redis gets only after the reader has looked for it", async () => {
    const proxy = await proxyTo(server.port);
    const cache = cacheOf(connector(library, proxy.port), { lease: 60_000, timeout: 500 });
    proxy.rule = (request) => (request.includes("lock:hold") ? "cut before" : "forward");
    await server.admin.config("RESETSTAT");
    expect(await cache.fetch(readOf("k", { ttl: 60_000 }), () => "loaded")).toBe("loaded");
    await eventually("the first look", async () => (await server.calls("get")) > 1);
    await proxy.deliver();
    expect(await server.admin.exists("lock:fill:{k}")).toBe(1);
    await eventually("the lease is given back", async () => (await server.admin.exists("lock:fill:{k}")) === 0);
  });

  test("a lease is given back whose release has no reply", async () => {
    const proxy = await proxyTo(server.port);
    const cache = cacheOf(connector(library, proxy.port), { lease: 60_000 });
    const fails = () => {
      proxy.rule = (request) => ((proxy.rule = () => "forward"), request.includes("lock:fill:{k}") ? "cut before" : "forward");
      throw new Error("the database is away");
    };
    await expect(cache.fetch(readOf("k", { ttl: 60_000 }), fails)).rejects.toThrow("the database is away");
    await eventually("the lease is given back", async () => (await server.admin.exists("lock:fill:{k}")) === 0);
  });
});
