import { createClient as createClient5 } from "@redis/client";
import { Cache, ioredis, nodeRedis, readOf, type Connector } from "@unstale/client";
import { Redis } from "ioredis";
import { Redis as Redis6 } from "ioredis6";
import { readFileSync } from "node:fs";
import { createClient } from "redis";

/** How long values stay in Redis, and in the memory of a process, in ms. */
const redisTTL = 3_600_000;
const memoryTTL = 60_000;

export type Value = unknown;
export type Loader = () => Promise<Value>;

/** What one process of an application has: a connection to Redis, and perhaps a memory. */
export interface Process {
  get(key: string, load: Loader): Promise<Value>;
  /** Deletes a key after the commit, in the way that the library documents. */
  delete(key: string): Promise<unknown>;
  /** Makes a round trip on the connection of `get`. */
  ping(): Promise<unknown>;
  close(): Promise<unknown>;
}

/** A library, used as its documentation says. */
export interface Library {
  readonly name: string;
  /** Its packages. */
  readonly packages: readonly string[];
  /** The client of Redis that it uses. */
  readonly client: keyof typeof clients;
  /** It keeps values in the memory of the process too. */
  readonly memory?: true;
  /** Its processes tell each other what to forget. */
  readonly bus?: true;
  /** The worker deletes its keys. */
  readonly ours?: true;
  readonly open: (port: number) => Promise<Process>;
}

const url = (port: number) => `redis://127.0.0.1:${port}`;
const ignore = () => undefined;

/** A bare client of Redis. */
export interface Bare {
  get(key: string): Promise<string | null>;
  set(key: string, value: string): Promise<unknown>;
  ping(): Promise<unknown>;
  close(): unknown;
}

function ofIORedis(client: Redis | Redis6): Bare {
  client.on("error", ignore);
  return { get: (key) => client.get(key), set: (key, value) => client.set(key, value), ping: () => client.ping(), close: () => client.disconnect() };
}

/** The clients of Redis that the libraries use. */
export const clients = {
  "ioredis 6": async (port: number) => ofIORedis(new Redis6(port)),
  "ioredis 5": async (port: number) => ofIORedis(new Redis(port)),
  "redis 6": async (port: number): Promise<Bare> => createClient({ url: url(port) }).on("error", ignore).connect(),
  "redis 5": async (port: number): Promise<Bare> => createClient5({ url: url(port) }).on("error", ignore).connect(),
};

/** The packages of these clients. */
export const packages = { "ioredis 6": "ioredis6", "ioredis 5": "ioredis", "redis 6": "redis", "redis 5": "@redis/client" } as const;

export interface ClientOptions {
  readonly timeout?: number;
  readonly tags?: readonly string[];
}

/** Opens this client. */
export function openClient(redis: Connector, { timeout = 5000, tags = [] }: ClientOptions = {}): Process {
  const cache = new Cache({ redis, timeout, lease: 60_000, logger: { warn: ignore } });
  const get = (key: string, load: Loader) => cache.fetch(readOf(key, { ttl: redisTTL, tags }), load);
  return {
    get,
    delete: () => Promise.reject(new Error("the worker deletes")),
    ping: () => get("unstale:ping", async () => 1),
    close: () => cache.close(),
  };
}

export const ofPort = {
  ioredis: (port: number) => ioredis(new Redis6(port, { lazyConnect: true })),
  redis: (port: number) => nodeRedis(createClient({ url: url(port) })),
};

async function openBento(port: number, memory: boolean): Promise<Process> {
  const { BentoCache, bentostore } = await import("bentocache");
  const { memoryDriver } = await import("bentocache/drivers/memory");
  const { redisBusDriver, redisDriver } = await import("bentocache/drivers/redis");
  const connection = new Redis(port);
  connection.on("error", ignore);
  let store = bentostore();
  if (memory) store = store.useL1Layer(memoryDriver({ maxItems: 10_000 }));
  store = store.useL2Layer(redisDriver({ connection }));
  if (memory) store = store.useBus(redisBusDriver({ connection: { host: "127.0.0.1", port } }));
  const bento = new BentoCache({ default: "cache", ttl: redisTTL, stores: { cache: store } });
  return {
    get: (key, factory) => bento.getOrSet({ key, factory }),
    delete: (key) => bento.delete({ key }),
    ping: () => connection.ping(),
    close: () => bento.disconnectAll(),
  };
}

/** Returns a store of Keyv in Redis, as cacheable and cache-manager use it. */
async function openKeyv(port: number) {
  const { createKeyv } = await import("@keyv/redis");
  const client = createClient5({ url: url(port) }).on("error", ignore);
  const keyv = createKeyv(client);
  keyv.on("error", ignore);
  await client.connect();
  return { keyv, ping: () => client.ping(), close: async () => client.destroy() };
}

async function openProvider(port: number) {
  const { RedisMessageProvider } = await import("@qified/redis");
  const provider = new RedisMessageProvider({ uri: url(port) });
  const { pub, sub } = provider as unknown as Record<"pub" | "sub", ReturnType<typeof createClient5>>;
  for (const client of [pub, sub]) client.on("error", ignore); // which ends the process otherwise
  return provider;
}

async function openCacheable(port: number, memory: boolean, sync: boolean): Promise<Process> {
  const { Cacheable } = await import("cacheable");
  const { Keyv } = await import("keyv");
  const { keyv, ping, close } = await openKeyv(port);
  const provider = sync ? await openProvider(port) : undefined;
  const cache = new Cacheable({
    ...(memory ? { primary: new Keyv({ ttl: memoryTTL }), secondary: keyv } : { primary: keyv }),
    ttl: redisTTL,
    ...(provider && { sync: { qified: provider } }),
  });
  cache.on("error", ignore);
  return {
    get: (key, load) => cache.getOrSet(key, load, { throwErrors: "function" }),
    delete: (key) => cache.delete(key),
    ping,
    close: async () => Promise.all([close(), provider?.disconnect()]),
  };
}

async function openCacheManager(port: number, memory: boolean): Promise<Process> {
  const { createCache } = await import("cache-manager");
  const { Keyv } = await import("keyv");
  const { keyv, ping, close } = await openKeyv(port);
  const cache = createCache({ stores: memory ? [new Keyv({ ttl: memoryTTL }), keyv] : [keyv], ttl: redisTTL });
  return { get: (key, load) => cache.wrap(key, load), delete: (key) => cache.del(key), ping, close };
}

const keyvPackages = ["@keyv/redis"];

export const libraries: readonly Library[] = [
  { name: "@unstale/client, ioredis", packages: [], client: "ioredis 6", ours: true, open: async (port) => openClient(ofPort.ioredis(port)) },
  { name: "@unstale/client, redis", packages: [], client: "redis 6", ours: true, open: async (port) => openClient(ofPort.redis(port)) },
  { name: "bentocache", packages: ["bentocache"], client: "ioredis 5", open: (port) => openBento(port, false) },
  { name: "bentocache, memory and bus", packages: ["bentocache"], client: "ioredis 5", memory: true, bus: true, open: (port) => openBento(port, true) },
  { name: "cacheable", packages: ["cacheable", ...keyvPackages], client: "redis 5", open: (port) => openCacheable(port, false, false) },
  { name: "cacheable, memory", packages: ["cacheable", ...keyvPackages], client: "redis 5", memory: true, open: (port) => openCacheable(port, true, false) },
  {
    name: "cacheable, memory and sync",
    packages: ["cacheable", ...keyvPackages, "@qified/redis"],
    client: "redis 5",
    memory: true,
    bus: true,
    open: (port) => openCacheable(port, true, true),
  },
  { name: "cache-manager", packages: ["cache-manager", ...keyvPackages], client: "redis 5", open: (port) => openCacheManager(port, false) },
  { name: "cache-manager, memory", packages: ["cache-manager", ...keyvPackages], client: "redis 5", memory: true, open: (port) => openCacheManager(port, true) },
];

/** Returns the version of a package of this folder. */
export function versionOf(name: string): string {
  return (JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), "utf8")) as { version: string }).version;
}

/** Names a library with the versions of its packages. */
export function title({ name, packages }: Library): string {
  const [, how] = name.split(", ");
  return packages.length === 0 ? name : packages.map((one) => `${one} ${versionOf(one)}`).join(", ") + (how ? `; ${how}` : "");
}
