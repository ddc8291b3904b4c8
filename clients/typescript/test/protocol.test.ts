// The cases of protocol/conformance for a reader.
import { readFileSync, readdirSync } from "node:fs";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as alive from "../src/alive.js";
import * as caches from "../src/cache.js";
import { State, hashOf, judge, longestUnpacked, parseEntry, type Integers } from "../src/entry.js";
import * as leases from "../src/lease.js";
import { lua } from "../src/lua.js";
import { holdKey, leaseKey, stampKey } from "../src/names.js";
import { leaseTTL } from "../src/options.js";
import { longestTTL, negativeTTL, readOf } from "../src/read.js";
import * as scripts from "../src/scripts.js";
import * as tokens from "../src/token.js";
import { bytesOf, conformance, type Bytes } from "./conformance.js";
import { RedisServer } from "./redis.js";

/** Returns the text of a field of bytes, undefined if it is not UTF-8. */
function textOf(field: Bytes): string | undefined {
  const bytes = bytesOf(field);
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes) ? text : undefined;
}

describe("names.json", () => {
  interface Case {
    reason: string;
    key?: Bytes;
    tag?: Bytes;
    lease?: string | null;
    hold?: string | null;
    stamp?: Bytes;
  }
  const { cases } = conformance<{ cases: Case[] }>("names");

  test.each(cases)("$reason", ({ key, tag, lease, hold, stamp }) => {
    const text = textOf(key ?? tag!);
    if (text === undefined) return; // no string is this key
    if (key !== undefined) expect([leaseKey(text), holdKey(text)]).toEqual([lease ?? undefined, hold ?? undefined]);
    else expect([stampKey(text), holdKey(stampKey(text))]).toEqual([textOf(stamp!), hold ?? undefined]);
  });

  test("a string that is not well-formed has no name: Redis would get another one", () => {
    expect([leaseKey("a\ud800"), holdKey(stampKey("\udc00"))]).toEqual([undefined, undefined]);
  });
});

describe("entries.json", () => {
  interface Case {
    reason: string;
    entry: Bytes;
    at: number;
    codec?: string;
    tags?: string[];
    versions?: Record<string, string>;
    read: "fresh" | "stale" | "on_error" | "miss" | "leave";
    value?: Bytes;
    not_found?: boolean;
    hash: string;
  }
  const { cases } = conformance<{ cases: Case[] }>("entries");
  const states = { fresh: State.fresh, stale: State.stale, on_error: State.onError, miss: State.absent, leave: State.foreign };

  function read({ entry, at, tags = [], versions = {} }: Case, integers: Integers) {
    const parsed = parseEntry(bytesOf(entry), integers);
    const own = typeof parsed === "object" ? Object.keys(parsed.tags) : [];
    const found = new Map([...tags, ...own].map((tag) => [tag, versions[tag] ?? ""]));
    return { state: judge(parsed, tags, found, at), value: typeof parsed === "object" ? parsed.value : undefined, negative: typeof parsed === "object" && parsed.negative };
  }

  test.each(cases.filter(({ codec }) => codec === undefined))("$reason", (one) => {
    expect(hashOf(bytesOf(one.entry))).toBe(one.hash);
    for (const integers of ["number", "bigint"] as const) {
      const { state, value, negative } = read(one, integers);
      const rounded = one.value !== undefined && textOf(one.value) === '{"id":9007199254740993}';
      if (rounded && integers === "number") {
        expect(state).toBe(State.absent);
        continue;
      }
      expect(state).toBe(states[one.read]);
      if ((state as State) <= State.foreign) continue;
      expect(negative).toBe(one.not_found ?? false);
      if (rounded) expect(value).toEqual({ id: 9007199254740993n });
      else expect(value).toEqual(negative ? undefined : JSON.parse(textOf(one.value!)!));
    }
  });
});

describe("hashes.json", () => {
  const { cases } = conformance<{ cases: { reason: string; value: Bytes; sha1: string }[] }>("hashes");

  test.each(cases)("$reason", ({ value, sha1 }) => {
    expect(hashOf(bytesOf(value))).toBe(sha1);
  });
});

describe("scripts.json", () => {
  type Reply = Bytes | number | null | Reply[];
  interface Step {
    script?: keyof typeof lua;
    keys?: Bytes[];
    args?: Bytes[];
    command?: Bytes[];
    reply?: Reply;
    error?: string;
  }
  interface Case {
    reason: string;
    before: Record<string, { value: Bytes; px?: number }>;
    steps: Step[];
    after: Record<string, { value: Bytes; px?: number }>;
  }
  const { cases } = conformance<{ cases: Case[] }>("scripts");
  let server: RedisServer;
  let redis: Redis;

  beforeAll(async () => {
    server = await RedisServer.start();
    redis = server.admin;
  });
  afterAll(() => server.stop());

  test("the scripts are the files, byte for byte", () => {
    const folder = new URL("../../../protocol/scripts/", import.meta.url);
    const files = readdirSync(folder).filter((name) => name.endsWith(".lua"));
    expect(Object.fromEntries(files.map((name) => [name.replace(".lua", ""), readFileSync(new URL(name, folder), "utf8")]))).toEqual(lua);
  });

  const makers: Record<string, typeof scripts.lease> = { lease: scripts.lease, stamp: scripts.stamp, fill: scripts.fill, release: scripts.release };
  const seconds = (n: number) => Math.ceil(n / 100_000) * 100_000;
  let latest = "";

  /** What a reply is with the latest time as TIME, and TTLs rounded up. */
  function shown(reply: unknown): unknown {
    if (Array.isArray(reply)) return reply.map(shown);
    if (typeof reply === "number") return reply > 1000 ? seconds(reply) : reply;
    if (!(reply instanceof Buffer)) return reply;
    const text = reply.toString("latin1");
    latest = /\d{16}/.exec(text)?.[0] ?? latest;
    return text.replaceAll(/\d{16}/g, "TIME");
  }
  const wanted = (reply: Reply | undefined): unknown => {
    if (Array.isArray(reply)) return reply.map(wanted);
    if (reply === undefined || reply === null || typeof reply === "number") return reply ?? null;
    return bytesOf(reply).toString("latin1").replaceAll(/\d{16}/g, "TIME");
  };

  test.each(cases.filter(({ steps }) => steps.every(({ script }) => script !== "expire")))("$reason", async ({ before, steps, after }) => {
    await redis.flushall();
    latest = "";
    for (const [name, { value, px }] of Object.entries(before)) await redis.call("SET", name, bytesOf(value), ...(px ? ["PX", px] : []));
    const resolved = (field: Bytes) => {
      const bytes = bytesOf(field);
      return bytes.includes("TIME") ? Buffer.from(bytes.toString("latin1").replaceAll("TIME", latest), "latin1") : bytes;
    };
    for (const { script, keys = [], args = [], command, reply, error } of steps) {
      const [name, ...rest] = script
        ? scripts.whole(makers[script]!(keys.map((key) => resolved(key).toString()), ...args.map(resolved)))
        : command!.map((part) => resolved(part));
      const answer = redis.callBuffer(String(name), ...rest);
      if (error !== undefined) await expect(answer).rejects.toThrow();
      else expect(shown(await answer)).toEqual(wanted(reply));
    }
    const names = await redis.keys("*");
    const valueOf = async (name: string) => ((await redis.type(name)) === "list" ? "(list)" : shown(await redis.getBuffer(name)));
    const state = await Promise.all(names.map(async (name) => [name, { value: await valueOf(name), px: seconds(await redis.pttl(name)) }]));
    const expected = Object.entries(after).map(([name, { value, px }]) => [name, { value: wanted(value), px: px || expect.any(Number) }]);
    expect(Object.fromEntries(state)).toEqual(Object.fromEntries(expected));
  });
});

describe("tokens.json", () => {
  interface Case {
    reason: string;
    token: Bytes;
    canonical?: string;
    source?: string;
    made?: number;
    first_ids?: number[];
    rows?: string;
    query?: string[];
    refused?: string;
  }
  const { cases, joined } = conformance<{ cases: Case[]; joined: { reason: string; tokens: [string, string]; token?: string; error?: string }[] }>("tokens");
  const few = ({ runs }: tokens.Token) => runs.flatMap(({ first, count, step }) => Array.from({ length: Math.min(count, 5) }, (_, i) => first + BigInt(i * step)));

  test.each(cases)("$reason", ({ token, canonical = "", source = "", made = 0, first_ids = [], rows, query, refused }) => {
    const text = textOf(token)!;
    if (refused !== undefined) return expect(() => tokens.parseToken(text)).toThrow("parse token: ");
    const parsed = tokens.parseToken(text);
    expect(parsed).toMatchObject({ source, made, many: rows === "many" });
    expect(few(parsed).map(String)).toEqual(first_ids.map((id) => BigInt(id) === 2n ** 63n ? "9223372036854775807" : String(id)));
    expect(tokens.formatToken(parsed)).toBe(canonical);
    if (query) expect(tokens.settledQuery(parsed).split("\n")).toEqual(query);
    return undefined;
  });

  test.each(joined)("joined: $reason", ({ tokens: texts, token, error }) => {
    const both = texts.map(tokens.parseToken) as [tokens.Token, tokens.Token];
    for (const [a, b] of [both, both.toReversed()] as typeof both[]) {
      if (error !== undefined) expect(() => tokens.joinTokens(a, b)).toThrow(error);
      else expect(tokens.formatToken(tokens.joinTokens(a, b))).toBe(token);
    }
  });
});

test("limits.json", () => {
  const seconds = (ms: number) => ms / 1000;
  const { cases } = conformance<{ cases: { name: string; value: number }[] }>("limits");
  const values = new Map(cases.map(({ name, value }) => [name, value]));
  const own = {
    "token.text": tokens.longestText,
    "token.rows": tokens.mostRows,
    "token.lifetime": tokens.tokenLifetime,
    "entry.unpacked": longestUnpacked,
    "entry.ttl": seconds(longestTTL),
    "entry.jitter": readOf("k", { ttl: 1 }).jitter,
    "entry.negative_ttl": seconds(negativeTTL),
    "entry.pause_after_failure": seconds(caches.loadPause),
    "version.margin": seconds(leases.versionMargin),
    "lease.ttl": seconds(leaseTTL),
    "lease.first_pause": seconds(leases.firstPause),
    "lease.longest_pause": seconds(leases.longestPause),
    "lease.holders": leases.mostHolders,
    "alive.age": seconds(alive.longestSilence),
    "clock.compare_after": seconds(alive.clockLife),
    "clock.step": seconds(alive.clockStep),
  };
  for (const [name, value] of Object.entries(own)) expect(values.get(name), name).toBe(value);
});
