// Redis that is away, hangs, was left by its workers or is a replica; Sentinel, Cluster and TLS.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { createClient, createSentinel } from "redis";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Connector, ioredis, nodeRedis, type NodeRedisClient, readOf } from "../src/index.js";
import { freePort } from "./processes.ts";
import { Proxy, RedisServer, cacheOf, connector, eventually, libraries } from "./redis.js";

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

  test("an answer that came while this process did not run counts", async () => {
    const server = await start();
    const cache = cacheOf(connector(library, server.port), { timeout: 20 });
    await eventually("a stored value", async () => (await cache.fetchResult(read, () => "stored")).source === "redis");
    const value = cache.fetch(read, () => "loaded");
    process.nextTick(() => {
      for (const end = performance.now() + 100; performance.now() < end; ); // the request is sent
    });
    expect(await value).toBe("stored");
  });

  /** Returns a cache that knows a server and has a value there, and the server that new connections lead to. */
  async function moved() {
    const [old, new_] = [await start(), await start()];
    const proxy = await Proxy.start(old.port);
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
    });
    expect(await cache.fetch(other, never)).toBe("new");
  }, 30_000);

  test("Cluster: keys and tags on several masters, in parallel", async () => {
    const nodes = [await start("--cluster-enabled", "yes"), await start("--cluster-enabled", "yes")] as const;
    await nodes[0].admin.call("CLUSTER", "ADDSLOTSRANGE", 0, 8191);
    await nodes[1].admin.call("CLUSTER", "ADDSLOTSRANGE", 8192, 16383);
    await nodes[1].admin.call("CLUSTER", "SET-CONFIG-EPOCH", 2);
    await nodes[0].admin.call("CLUSTER", "MEET", "127.0.0.1", nodes[1].port);
    for (const { admin } of nodes) await eventually("the cluster has formed", async () => /cluster_state:ok[^]*cluster_known_nodes:2/.test(String(await admin.call("CLUSTER", "INFO"))));
    const cache = cacheOf(connector(library, nodes[0].port, true));
    const reads = Array.from({ length: 20 }, (_, i) => readOf<number>(`key:${i}`, { ttl: 60_000, tags: ["a", "b"] }));
    await Promise.all(reads.map((one, i) => cache.fetch(one, () => i)));
    expect(await Promise.all(reads.map((one) => cache.fetch(one, never)))).toEqual(reads.map((_, i) => i));
    expect([...(await cache.fetchMany(reads, never)).values()]).toEqual(reads.map((_, i) => i));
    const sizes = await Promise.all(nodes.map(({ admin }) => admin.dbsize()));
    expect(sizes[0]).toBeGreaterThan(0);
    expect(sizes[0]! + sizes[1]!).toBe(22);
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
