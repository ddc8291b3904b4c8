// Redis that is away, hangs, was left by its workers or is a replica; Sentinel, Cluster and TLS.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster, createSentinel } from "redis";
import { describe, expect, onTestFinished, test } from "vitest";
import { Cache, type Connector, ioredis, nodeRedis, type NodeRedisClient, readOf } from "../src/index.js";
import { freePort } from "./processes.ts";
import { RedisServer, cacheOf, connector, eventually, libraries, proxyTo } from "./redis.js";

async function start(...options: string[]): Promise<RedisServer> {
  const server = await RedisServer.start(...options);
  onTestFinished(() => server.stop());
  return server;
}

const never = () => Promise.reject(new Error("nothing is to be loaded"));
const read = readOf<string>("k", { ttl: 60_000 });

/** Writes what a worker writes once per second, as if some time ago. */
async function beat(server: RedisServer, ago = 0): Promise<void> {
  const t = Math.floor((await server.time() - ago) * 1000);
  await server.admin.hset("unstale:alive", "shop", JSON.stringify({ t, lease: 10_000, map: "m" }));
}

describe.each(libraries)("with %s", (library) => {
  test("without Redis each call loads at once, the breaker opens, and closes when Redis is back", async () => {
    const server = await start();
    const warnings: string[] = [];
    let trips = 0;
    const cache = cacheOf(connector(library, server.port), {
      timeout: 100,
      breaker: { pause: 50 },
      logger: { warn: (message: string) => warnings.push(message) },
      hooks: { redis: () => void trips++ },
    });
    expect(await cache.fetch(read, () => "stored")).toBe("stored");
    await server.kill();
    for (let i = 0; i < 5; i++) {
      const begun = performance.now();
      expect(await cache.fetch(read, () => "loaded")).toBe("loaded");
      expect(performance.now() - begun).toBeLessThan(1000);
    }
    expect(cache.healthy()).toBeInstanceOf(Error);
    expect(warnings).toEqual(["Redis is away: every call loads"]);
    const before = trips;
    const values = await Promise.all(Array.from({ length: 50 }, (_, i) => cache.fetch(readOf(`${i}`, { ttl: 1000 }), () => i)));
    expect(values).toHaveLength(50);
    expect(trips - before).toBeLessThanOrEqual(1); // the one that tries again
    await server.start();
    await eventually("a value is stored", async () => (await cache.fetchResult(read, () => "again")).source === "redis");
    expect(cache.healthy()).toBe(undefined);
    expect(warnings).toEqual(["Redis is away: every call loads", "Redis is back"]);
  });

  test("a Redis that hangs costs its callers the timeout, until the breaker opens", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 100, breaker: { pause: 60_000, failures: 3 } });
    await cache.fetch(read, () => "stored");
    server.signal("SIGSTOP");
    for (let i = 0; i < 3; i++) {
      const begun = performance.now();
      expect(await cache.fetch(read, () => "loaded")).toBe("loaded");
      expect(performance.now() - begun).toBeGreaterThan(90);
      expect(performance.now() - begun).toBeLessThan(2000);
    }
    expect(cache.healthy()?.message).toBe("Redis has not answered in 100 ms");
    server.signal("SIGCONT");
    const patient = cacheOf(connector(library, server.port), { timeout: 100, breaker: { pause: 10, failures: 1 } });
    expect(await patient.fetch(read, never)).toBe("stored");
    server.signal("SIGSTOP");
    expect(await patient.fetch(read, () => "loaded")).toBe("loaded");
    server.signal("SIGCONT");
    await eventually("the value of Redis", async () => (await patient.fetch(read, () => "loaded")) === "stored");
  });

  test("a burst at a Redis that hangs waits for two timeouts, then loads", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 2000, breaker: { failures: 1000 } });
    await cache.fetch(read, () => "stored");
    server.signal("SIGSTOP");
    const begun = performance.now();
    const reads = Array.from({ length: 20_000 }, (_, i) => readOf<number>(`${i}`, { ttl: 60_000 }));
    await Promise.all(reads.map((one, i) => cache.fetch(one, () => i)));
    expect(performance.now() - begun).toBeLessThan(38_000); // not 20 times
    expect(cache.stats().errors).toBe(20_000);
    server.signal("SIGCONT");
  }, 60_000);

  test("a caller does not wait for a Redis that hangs twice after its load", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 1000 });
    let loaded = 0;
    expect(await cache.fetch(read, () => (server.signal("SIGSTOP"), (loaded = performance.now()), "loaded"))).toBe("loaded");
    expect(performance.now() - loaded).toBeLessThan(1800);
    server.signal("SIGCONT");
    await eventually("the lease is given back", async () => (await server.admin.exists("lock:fill:{k}")) === 0);
  });

  test("the database of the client is used, or none", async () => {
    const server = await start();
    await server.admin.call("ACL", "SETUSER", "shop", "on", ">secret", "~*", "+@all", "-select");
    const of = (user: string, database: number) => {
      const url = `redis://${user}127.0.0.1:${server.port}/${database}`;
      return cacheOf(library === "redis" ? nodeRedis(createClient({ url })) : ioredis(new Redis(url, { lazyConnect: true })), { breaker: { failures: 1 } });
    };
    await cacheOf(connector(library, server.port)).fetch(read, () => "of database 0");
    await of("", 3).fetch(read, () => "of database 3");
    expect(await of("", 3).fetch(read, never)).toBe("of database 3");
    for (const [user, database, error] of [["shop:secret@", 3, /^NOPERM .* 'select'/], ["", 99, /^ERR DB index is out of range/]] as const) {
      const cache = of(user, database);
      expect(await cache.fetch(read, () => "loaded")).toBe("loaded");
      expect(cache.healthy()?.message).toMatch(error);
      expect(cache.stats().errors).toBe(1);
    }
  });

  test("healthy has the reason of an outage", async () => {
    const server = await start();
    for (const [user, port, error] of [["shop:wrong@", server.port, "WRONGPASS"], ["", await freePort(), "ECONNREFUSED"]] as const) {
      const cache = cacheOf(connector(library, port, false, user), { breaker: { failures: 1 } });
      await cache.fetch(read, () => "loaded");
      expect(cache.healthy()?.message).toMatch(error);
    }
  });

  test("an error that a connection throws is one of Redis", async () => {
    const fails = (): never => {
      throw new Error("a mistake");
    };
    const connectors: Connector[] = [
      { cluster: false, open: fails },
      { cluster: false, open: async () => ({ send: fails, close: () => undefined }) },
    ];
    for (const redis of connectors) {
      const cache = cacheOf(redis, { breaker: { failures: 1 } });
      expect(await cache.fetch(read, () => "loaded")).toBe("loaded");
      expect(cache.healthy()?.message).toBe("a mistake");
    }
  });

  test("an answer that came while this process did not run counts", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 100 });
    await eventually("a stored value", async () => (await cache.fetchResult(read, () => "stored")).source === "redis");
    const value = cache.fetch(read, () => "loaded");
    process.nextTick(() => {
      for (const end = performance.now() + 1000; performance.now() < end; ); // the request is sent
    });
    expect(await value).toBe("stored");
  });

  test("a busy process does not wait for an answer without end", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 100 });
    await cache.fetch(read, () => "stored");
    server.signal("SIGSTOP");
    const begun = performance.now();
    const value = cache.fetch(read, () => "loaded").finally(() => (waits = false));
    let waits = true;
    while (waits && performance.now() - begun < 3000) {
      for (const end = performance.now() + 30; performance.now() < end; );
      await new Promise(setImmediate);
    }
    expect(performance.now() - begun).toBeLessThan(1000);
    server.signal("SIGCONT");
    expect(await value).toBe("loaded");
  });

  /** Returns a cache that knows a server and has a value there, and the server that new connections lead to. */
  async function moved() {
    const [old, new_] = [await start(), await start()];
    const proxy = await proxyTo(old.port);
    await beat(old);
    const cache = cacheOf(connector(library, proxy.port), { source: "shop" });
    await cache.fetch(read, () => "old");
    proxy.target = new_.port;
    return { old, new_, cache };
  }

  test("a server that workers have left is not used, if a new connection leads to them", async () => {
    const { old, new_, cache } = await moved();
    await beat(old, 3500);
    await beat(new_);
    const begun = performance.now();
    await eventually("a load", async () => (await cache.fetch(read, () => "new")) === "new");
    expect(performance.now() - begun).toBeLessThan(5000);
    await eventually("the new server has the value", async () => (await cache.fetchResult(read, () => "new")).source === "redis");
    expect([await new_.admin.exists("k"), cache.stats().strays > 0]).toEqual([1, true]);
    await beat(new_, 3500); // no worker runs anywhere
    await eventually("a question", async () => (await cache.fetch(read, () => "loaded"), (await new_.calls("unlink")) > 1));
    expect(await cache.fetch(read, never)).toBe("new");
  });

  test("a server is not used if workers have moved, written and ended", async () => {
    const { old, new_, cache } = await moved();
    await beat(old, 9000);
    await beat(new_, 5000);
    await eventually("a load", async () => (await cache.fetch(read, () => "new")) === "new");
    await eventually("the new server has the value", async () => (await cache.fetchResult(read, () => "newer")).source === "redis");
    expect(await new_.admin.exists("k")).toBe(1);
  });

  test("a replica is not read", async () => {
    const master = await start("--repl-diskless-sync-delay", "0");
    const replica = await start("--replicaof", `127.0.0.1 ${master.port}`);
    await beat(master);
    await cacheOf(connector(library, master.port)).fetch(read, () => "stored");
    await eventually("replication", async () => (await replica.admin.exists("k", "unstale:alive")) === 2);
    const cache = cacheOf(connector(library, replica.port), { breaker: { pause: 10 } });
    for (let i = 0; i < 6; i++) expect(await cache.fetch(read, () => "loaded")).toBe("loaded");
    expect(cache.healthy()?.message).toMatch("replica");
    await replica.admin.replicaof("NO", "ONE");
    await eventually("the value of the new master", async () => (await cache.fetch(read, () => "loaded")) === "stored");
  });

  test("Sentinel: the reader follows a failover, or node-redis 5 is refused", async () => {
    const options = { name: "shop", sentinelRootNodes: [{ host: "127.0.0.1", port: 1 }] };
    const client: object = createSentinel(options);
    if (library === "redis" && !("duplicate" in client)) {
      expect(() => nodeRedis(client as NodeRedisClient)).toThrow("createSentinel has one from redis 6 on");
      return;
    }
    const master = await start("--repl-diskless-sync-delay", "0");
    const replica = await start("--replicaof", `127.0.0.1 ${master.port}`);
    const config = join(master.folder, "sentinel.conf");
    writeFileSync(config, `sentinel monitor shop 127.0.0.1 ${master.port} 1\nsentinel down-after-milliseconds shop 500\n`);
    const sentinel = await start(config, "--sentinel");
    const node = { host: "127.0.0.1", port: sentinel.port };
    const redis: Connector =
      library === "ioredis"
        ? ioredis(new Redis({ sentinels: [node], name: "shop", lazyConnect: true }))
        : nodeRedis(createSentinel({ ...options, sentinelRootNodes: [node] }));
    const cache = cacheOf(redis, { timeout: 500, breaker: { pause: 50 } });
    await eventually("a stored value", async () => (await cache.fetchResult(read, () => "stored")).source === "redis");
    expect(await master.admin.exists("k")).toBe(1);
    await eventually("the sentinel knows the replica", async () => JSON.stringify(await sentinel.admin.call("SENTINEL", "REPLICAS", "shop")).includes(`127.0.0.1:${replica.port}`));
    await eventually("replication", async () => (await replica.admin.exists("k")) === 1);
    await master.kill();
    const other = readOf<string>("other", { ttl: 60_000 });
    await eventually("the new master has a value", async () => {
      await cache.fetch(other, () => "new");
      return (await replica.admin.exists("other")) === 1;
    }, 60); // a Sentinel that did not run for two seconds does nothing for the next 30
    expect(await cache.fetch(other, never)).toBe("new");
  }, 90_000);

  test("Cluster: keys and tags on several masters, in parallel", async () => {
    const nodes = [await start("--cluster-enabled", "yes"), await start("--cluster-enabled", "yes")] as const;
    await nodes[0].admin.call("CLUSTER", "ADDSLOTSRANGE", 0, 8191);
    await nodes[1].admin.call("CLUSTER", "ADDSLOTSRANGE", 8192, 16383);
    await nodes[1].admin.call("CLUSTER", "SET-CONFIG-EPOCH", 2);
    await nodes[0].admin.call("CLUSTER", "MEET", "127.0.0.1", nodes[1].port);
    for (const { admin } of nodes) await eventually("the cluster has formed", async () => /cluster_state:ok[^]*cluster_known_nodes:2/.test(String(await admin.call("CLUSTER", "INFO"))));
    for (const { admin } of nodes) await admin.config("SET", "requirepass", "secret", "masterauth", "secret");
    const node = { host: "127.0.0.1", port: nodes[0].port };
    const redis =
      library === "ioredis"
        ? ioredis(new Cluster([node], { lazyConnect: true, redisOptions: { password: "secret", keyPrefix: "mine:", enableAutoPipelining: true } }))
        : nodeRedis(createCluster({ rootNodes: [{ socket: node }], defaults: { password: "secret" } }));
    const cache = cacheOf(redis);
    const reads = Array.from({ length: 20 }, (_, i) => readOf<number>(`key:${i}`, { ttl: 60_000, tags: ["a", "b"] }));
    await Promise.all(reads.map((one, i) => cache.fetch(one, () => i)));
    expect(await Promise.all(reads.map((one) => cache.fetch(one, never)))).toEqual(reads.map((_, i) => i));
    expect([...(await cache.fetchMany(reads, never)).values()]).toEqual(reads.map((_, i) => i));
    const sizes = await Promise.all(nodes.map(({ admin }) => admin.dbsize()));
    expect(sizes[0]).toBeGreaterThan(0);
    expect(sizes[0]! + sizes[1]!).toBe(22);
    for (const { admin } of nodes) await admin.config("SET", "requirepass", "");
    for (const { admin } of nodes) await admin.unlink("stamp:a").catch(() => undefined);
    expect(await cache.fetch(reads[0]!, () => 100)).toBe(100);
    await nodes[1].kill();
    const begun = performance.now();
    const quick = cacheOf(connector(library, nodes[0].port, true), { timeout: 100 });
    expect(await Promise.all(reads.map((one) => quick.fetch(one, () => -1)))).toHaveLength(20);
    expect(performance.now() - begun).toBeLessThan(3000);
  }, 30_000);

  test("TLS and a password, over the options of the client", async () => {
    const [plain, port] = [await start(), await freePort()];
    const [key, cert] = [join(plain.folder, "key.pem"), join(plain.folder, "cert.pem")];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], { stdio: "ignore" });
    await plain.admin.config("SET", "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", cert, "tls-auth-clients", "no", "tls-port", String(port), "requirepass", "secret");
    const ca = readFileSync(cert);
    const redis: Connector =
      library === "ioredis"
        ? ioredis(new Redis({ host: "127.0.0.1", port, password: "secret", keyPrefix: "mine:", tls: { ca }, lazyConnect: true }))
        : nodeRedis(createClient({ password: "secret", socket: { host: "127.0.0.1", port, tls: true, ca } }));
    const cache = cacheOf(redis);
    await cache.fetch(read, () => "stored");
    expect(await cache.fetch(read, never)).toBe("stored");
    await plain.admin.auth("secret");
    expect(await plain.admin.keys("*")).toEqual(["k"]);
  });
});

test("another client than that of the function is refused", () => {
  const [io, node] = [new Redis({ lazyConnect: true }), createClient()];
  // @ts-expect-error: the wrong client
  expect(() => nodeRedis(io)).toThrow("nodeRedis: this is a client of ioredis; use ioredis for it");
  // @ts-expect-error: the wrong client
  expect(() => ioredis(node)).toThrow("ioredis: this is not a client of ioredis 5 or 6; use nodeRedis for a client of the package redis");
  for (const wrong of [undefined, null, {}, node.legacy()]) {
    expect(() => nodeRedis(wrong as never)).toThrow("nodeRedis: the client has no duplicate; pass what createClient or createCluster returns");
    expect(() => ioredis(wrong as never)).toThrow("ioredis: this is not a client of ioredis 5 or 6");
  }
  for (const wrong of [undefined, {}, { redis: io }, { redis: node }]) expect(() => new Cache(wrong as never)).toThrow("new Cache: the option redis is not a connector; set it to ioredis(client) or nodeRedis(client)");
});
