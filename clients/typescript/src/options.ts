import type { Integers } from "./entry.js";
import type { Read } from "./read.js";
import type { Connector } from "./redis.js";
import type { Queryable } from "./token.js";

/** The default of `CacheOptions.lease`. */
export const leaseTTL = 10_000;

export interface CacheOptions {
  /** `ioredis(client)` or `nodeRedis(client)`. The cache makes its own connections. */
  readonly redis: Connector;
  /** The ID of the outbox, if workers of several write to this Redis. Default: all. */
  readonly source?: string | undefined;
  /** For each round trip to Redis, in ms. Default: 100. */
  readonly timeout?: number | undefined;
  /** After `failures` (5) failed round trips in a row, none is sent for `pause` ms (1,000). Then one is. */
  readonly breaker?: { readonly failures?: number | undefined; readonly pause?: number | undefined } | undefined;
  /** How long a load may take, in ms, for its value to be stored. A shorter lease of the map counts. Default: 10,000. */
  readonly lease?: number | undefined;
  /** How long a load may take, in ms, before callers get a LoadTimeoutError. Default: 80 % of `lease`. */
  readonly loadTimeout?: number | undefined;
  /**
   * Integers beyond 2^53 - 1 in values. "number", the default: a value with an integer that a number
   * would round counts as missing, and is loaded. "bigint": they are read as bigint, and bigint is
   * written as an integer. Smaller integers are numbers in both cases.
   */
  readonly integers?: Integers | undefined;
  /** A pool on the primary, which is asked about write tokens. */
  readonly primary?: Queryable | undefined;
  /** Receives outages and mistakes of the configuration. What it throws is ignored. Default: `console`. */
  readonly logger?: { warn(message: string, ...details: unknown[]): void } | undefined;
  readonly hooks?: Hooks | undefined;
}

/** Functions that watch the cache. What they return is called at the end. What they throw is logged once. */
export interface Hooks {
  readonly fetch?: ((read: Read) => ((error: unknown, source?: Source, stale?: boolean) => void) | void) | undefined;
  readonly load?: ((read: Read) => ((error: unknown) => void) | void) | undefined;
  /** A round trip to Redis. */
  readonly redis?: ((commands: number) => ((error?: Error) => void) | void) | undefined;
}

export interface FetchOptions {
  /** Ends the wait of this caller. The load continues. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The text of a write token, for example of a cookie: until its rows are settled, the value is loaded.
   * It needs `CacheOptions.primary`. A text that is no token is ignored.
   */
  readonly token?: string | undefined;
}

/** Where a value came from: "loader" also for a load that the caller has joined. */
export type Source = "redis" | "loader";

/** A value, its source, and whether it has expired: see `Policy.stale` and `Policy.staleOnError`. */
export interface Result<T> {
  readonly value: T;
  readonly source: Source;
  readonly stale: boolean;
}

/** What a loader gets: it decides how its value is stored. */
export interface Load {
  /** Ends after `CacheOptions.loadTimeout` and with the cache, not with the caller's signal: others may wait too. */
  readonly signal: AbortSignal;
  /**
   * Adds tags. An invalidation of a tag that neither the read nor the previous value has is not noticed
   * during the load, so the first value with such a tag is not stored, and the second is.
   */
  readonly tag: (...tags: string[]) => void;
  /** Replaces the TTL by one in ms that the value never exceeds. With less than 1 it is not stored. */
  readonly ttl: (ms: number) => void;
  /** Stores the value nowhere. */
  readonly skip: () => void;
}

/**
 * Gets a value from the primary, not in a transaction that began before the call. It returns undefined
 * for what does not exist. It must not fetch its own key, which would wait for itself.
 */
export type Loader<T> = (load: Load) => Promise<T> | T;

/** Gets the values of several reads, by their keys. It leaves out what does not exist. */
export type ManyLoader<T> = (missing: Read<T>[], load: Load) => Promise<ReadonlyMap<string, T>> | ReadonlyMap<string, T>;

/** Counts calls by what they found in Redis: hits are also negative and expired values, stale only these. */
export type ReadStatistics = Record<"hits" | "misses" | "stale", number>;

/**
 * Counts since the cache was made, of
 * - calls, in all and by the name of the read; `unsettled`: they had to load, since their caller's writes
 *   are not known to be settled; `uncached`: they were not cached, since no invalidation would reach the value;
 * - loads of keys, and those that failed;
 * - values that Redis took (`sets`), that it refused since an invalidation came before them, and that could
 *   not be stored since Redis failed or refused a command, or since they have no JSON (`errors`);
 * - unused answers of servers that workers have left (`strays`), and leases that were shorter than
 *   `CacheOptions.lease`, as the map says.
 */
export interface Statistics extends ReadStatistics, Record<"unsettled" | "uncached" | "loads" | "loadErrors" | "sets" | "refused" | "errors" | "strays" | "shortLeases", number> {
  reads: Record<string, ReadStatistics>;
}

/** Options with their defaults. */
export interface Settings extends CacheOptions {
  readonly timeout: number;
  readonly failures: number;
  readonly pause: number;
  readonly lease: number;
  readonly loadTimeout: number;
  readonly integers: Integers;
  readonly logger: NonNullable<CacheOptions["logger"]>;
}

/** Throws a TypeError without a connector, and a RangeError for an invalid option. */
export function withDefaults(options: CacheOptions): Settings {
  if (typeof (options as CacheOptions | undefined)?.redis?.open !== "function") throw new TypeError("new Cache: the option redis is not a connector; set it to ioredis(client) or nodeRedis(client)");
  const { timeout = 100, lease = leaseTTL, loadTimeout = lease * 0.8, integers = "number", breaker = {}, logger = console } = options;
  const { failures = 5, pause = 1000 } = breaker;
  const limits = { timeout: [timeout, 10, 5000], lease: [lease, 10, 3_600_000], loadTimeout: [loadTimeout, 1, lease - 1], "breaker.failures": [failures, 1, 1000], "breaker.pause": [pause, 1, 60_000] };
  for (const [name, [value, least, most]] of Object.entries(limits) as [string, [number, number, number]][]) {
    if (!(value >= least && value <= most)) throw new RangeError(`${name} is ${value}, wanted ${least} to ${most}`);
  }
  if (integers !== "number" && integers !== "bigint") throw new RangeError(`integers is ${String(integers)}, wanted number or bigint`);
  const warn = guarded((...message: Parameters<typeof logger.warn>) => logger.warn(...message), () => undefined);
  return { ...options, timeout, failures, pause, lease: Math.floor(lease), loadTimeout, integers, logger: { warn }, hooks: options.hooks && guardedHooks(options.hooks, warn) };
}

/** Returns a function that calls `call`, and reports what it throws. */
function guarded<A extends unknown[], R>(call: (...args: A) => R, report: (error: unknown) => void): (...args: A) => R | undefined {
  return (...args) => {
    try {
      const result = call(...args);
      if (result instanceof Promise) result.catch(report);
      return result;
    } catch (error) {
      report(error);
      return undefined;
    }
  };
}

/** Returns hooks that do not throw. The first error is logged. */
function guardedHooks(hooks: Hooks, warn: Settings["logger"]["warn"]): Hooks {
  let first = true;
  const report = (error: unknown) => {
    if (first) warn("a hook of the cache throws, which is ignored", error);
    first = false;
  };
  const watch = <A extends unknown[], E extends unknown[]>(hook: ((...args: A) => ((...end: E) => void) | void) | undefined) => {
    if (hook === undefined) return undefined;
    const begin = guarded<A, ReturnType<typeof hook>>(hook.bind(hooks), report);
    return (...args: A) => {
      const end = begin(...args);
      return typeof end === "function" ? guarded(end, report) : undefined;
    };
  };
  return { fetch: watch(hooks.fetch), load: watch(hooks.load), redis: watch(hooks.redis) };
}

/** The error of a load that took longer than `CacheOptions.loadTimeout`. */
export class LoadTimeoutError extends Error {
  override readonly name = "LoadTimeoutError";
}

/** The error of calls after `close`, and of loads that it has ended. */
export class ClosedError extends Error {
  override readonly name = "ClosedError";
}
