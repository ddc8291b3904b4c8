import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { onTestFinished } from "vitest";
import { Cache, ioredis, nodeRedis, type CacheOptions, type Connector } from "../src/index.js";
import { freePort, kill, startRedis } from "./processes.ts";
import { Proxy } from "./proxy.ts";

/** The Redis libraries that the tests run with. */
export const libraries = ["ioredis", "redis"] as const;
export type Library = (typeof libraries)[number];

/** A redis-server of a test, without persistence. */
export class RedisServer {
  readonly folder = mkdtempSync(join(tmpdir(), "unstale-redis-"));
  readonly admin: Redis;
  #process: ChildProcess | undefined;

  private constructor(
    readonly port: number,
    readonly options: string[],
  ) {
    this.admin = new Redis({ port, lazyConnect: true, maxRetriesPerRequest: null, retryStrategy: () => 20 });
    this.admin.on("error", () => undefined);
  }

  /** Starts the redis-server on PATH. It ends with the test or the file. */
  static async start(...options: string[]): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), options);
    await server.start();
    return server;
  }

  /** Starts it again, on the same port. */
  async start(): Promise<void> {
    const isFile = (option: string) => option.startsWith("/"); // which comes first
    const own = ["--port", String(this.port), "--save", "", "--dir", this.folder];
    this.#process = await startRedis(...this.options.filter(isFile), ...own, ...this.options.filter((option) => !isFile(option)));
  }

  /** Ends it at once. */
  async kill(): Promise<void> {
    if (this.#process) await kill(this.#process);
  }

  /** Makes it hang, or continue. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void {
    this.#process!.kill(signal);
  }

  async stop(): Promise<void> {
    this.admin.disconnect();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** How often a command was called since `CONFIG RESETSTAT`. */
  async calls(command: string): Promise<number> {
    const info = await this.admin.info("commandstats");
    return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(info)?.[1] ?? 0);
  }

  /** Its time in ms. */
  async time(): Promise<number> {
    const [seconds, micros] = await this.admin.time();
    return Number(seconds) * 1000 + Number(micros) / 1000;
  }

  /** Does what a worker does with a key or a tag version. */
  async unlink(name: string): Promise<void> {
    await this.admin.unlink(name, `lock:fill:${name.includes("{") ? name : `{${name}}`}`);
  }
}

/** Returns connections to a server, or to a Cluster. */
export function connector(library: Library, port: number, cluster = false, user = ""): Connector {
  const url = `redis://${user}127.0.0.1:${port}`;
  if (cluster) return library === "redis" ? nodeRedis(createCluster({ rootNodes: [{ url }] })) : ioredis(new Cluster([url], { lazyConnect: true }));
  return library === "redis" ? nodeRedis(createClient({ url })) : ioredis(new Redis(url, { lazyConnect: true }));
}

/** Returns a cache that closes with the test. */
export function cacheOf(redis: Connector, options: Partial<CacheOptions> = {}): Cache {
  const cache = new Cache({ redis, timeout: 2000, logger: { warn: () => undefined }, ...options });
  onTestFinished(() => cache.close());
  return cache;
}

/** Returns connections whose server needs some ms for each key or script, one after another. */
export function slow(redis: Connector, ms: number): Connector {
  const open: Connector["open"] = async (...args) => {
    const link = await redis.open(...args);
    let free = 0; // when it can begin with the next commands
    return {
      close: () => link.close(),
      send(commands, done) {
        free = Math.max(free, performance.now()) + ms * commands.reduce((sum, { length, 0: name }) => sum + (name === "mget" ? length - 1 : 1), 0);
        link.send(commands, (replies) => void setTimeout(() => done(replies), free - performance.now()));
      },
    };
  };
  return { cluster: redis.cluster, open };
}

/** Waits until something holds. */
export async function eventually(what: string, holds: () => Promise<boolean> | boolean, seconds = 10): Promise<void> {
  for (const end = performance.now() + 1000 * seconds; !(await holds()); ) {
    if (performance.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise(setImmediate);
  }
}

/** Something that happens later. */
export function signal<T = void>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  return Promise.withResolvers<T>();
}

/** Returns a proxy that ends with the test. */
export async function proxyTo(target: number): Promise<Proxy> {
  const proxy = await Proxy.open(target);
  onTestFinished(() => proxy.close());
  return proxy;
}
