import { createHash } from "node:crypto";

/** An ID or another value of a row. A number must be an integer up to 2^53 - 1; `bigint` and text are exact. */
export type Id = bigint | number | string;

/** For how long a value is kept. Times are milliseconds, at most 365 days. */
export interface Policy {
  /** How long a value is fresh, at least 1. */
  readonly ttl: number;
  /** By how much `ttl` varies at most, either way, as a part of it, below 1. Default: 0.15. */
  readonly jitter?: number;
  /** How long after `ttl` the value is still returned while one caller loads. Default: a tenth of `ttl`. */
  readonly stale?: number;
  /** How long after `ttl` the value is still returned if the load fails. Default: 0. */
  readonly staleOnError?: number;
  /** How long it is kept that the loader found nothing. 0: never. Default: 120 s, or `ttl` if shorter. */
  readonly negative?: number;
}

declare const type: unique symbol;

/** One value that a map's section `reads` names: its key in Redis and its policy. T is its type. */
export interface Read<T = unknown> extends Required<Policy> {
  readonly key: string;
  /** The entry of the section `reads`, for statistics. */
  readonly name: string;
  /** The value depends on these: invalidating one invalidates the value. */
  readonly tags: readonly string[];
  /** Why no invalidation would reach the value: it is then loaded and not cached. */
  readonly error?: string;
  readonly [type]?: T;
}

export const longestTTL = 365 * 24 * 3_600_000;
export const negativeTTL = 120_000;

/** Returns a policy with its defaults. */
function withDefaults(name: string, policy: Policy): Required<Policy> & { readonly name: string } {
  const { ttl, jitter = 0.15, stale = ttl / 10, staleOnError = 0, negative = Math.min(negativeTTL, ttl) } = policy;
  const isTime = (ms: number, least: number) => ms >= least && ms <= longestTTL;
  if (isTime(ttl, 1) && jitter >= 0 && jitter < 1 && isTime(stale, 0) && isTime(staleOnError, 0) && isTime(negative, 0)) return { name, ttl, jitter, stale, staleOnError, negative };
  throw new RangeError(`the read ${name}: ${JSON.stringify(policy)} has a time that is not from 0 to ${longestTTL} ms, a ttl below 1, or a jitter that is not from 0 to below 1`);
}

/**
 * Returns a read without a map. Use the functions of a generated module instead where one exists:
 * a key that the worker's map does not name is never invalidated. `name` is for statistics, by
 * default "other". Throws a TypeError or a RangeError for an invalid argument.
 */
export function readOf<T = unknown>(key: string, policy: Policy & { name?: string; tags?: readonly string[] }): Read<T> {
  const tags: unknown = (policy as typeof policy | undefined)?.tags ?? [];
  if (typeof key !== "string") throw new TypeError(`readOf: the key is ${String(key)}: must be a string`);
  if (typeof policy !== "object") throw new TypeError(`readOf(${JSON.stringify(key)}): the policy is ${String(policy)}: must be an object, for example { ttl: 60_000 }`);
  if (!Array.isArray(tags) || !tags.every((tag) => typeof tag === "string")) throw new TypeError(`readOf(${JSON.stringify(key)}): tags is ${JSON.stringify(tags)}: must be a list of strings`);
  return { ...withDefaults(policy.name ?? "other", policy), key, tags };
}

/** A variable of the map, as generated code names it: `text` has `${NAME}` and `${NAME:-default}`. */
export interface ReadVar {
  readonly name: string;
  readonly text: string;
  readonly oneOf?: readonly string[];
}

/** An entry of the section `reads`, for generated code. */
export interface ReadEntry {
  read<T>(key: string, tags?: readonly string[]): Read<T>;
  /** For a value that no row can have or that the map does not declare. */
  refuse<T>(hole: string, value: unknown): Read<T>;
}

type Env = Readonly<Record<string, string | undefined>>;

/** The part of a map that a generated module contains. Applications use `use` and `check`. */
export class ReadMap {
  readonly #hash: string;
  readonly #vars: readonly ReadVar[];
  #now: { values: readonly string[]; error?: string } | undefined;

  /** Called by generated code. */
  constructor(hash: string, vars: readonly ReadVar[] = []) {
    this.#hash = hash;
    this.#vars = vars;
  }

  /**
   * Sets the values of the map's variables. Without it, they come from `process.env` at the first
   * read. Throws if a variable is missing or has a value that the map does not allow.
   */
  use(env: Env): void {
    this.#now = this.#resolve(env);
    this.check();
  }

  /** Throws if a variable of the map is missing: its reads are then loaded and not cached. */
  check(): void {
    const { error } = this.#current;
    if (error !== undefined) throw new Error(error);
  }

  /** The fingerprint of the map's reads with the values of the variables, "" if `check` throws. */
  get version(): string {
    const { values, error } = this.#current;
    const text = `reads 1 ${this.#hash} [${values.map((v) => JSON.stringify(v)).join(" ")}]`;
    return error === undefined ? createHash("sha256").update(text).digest("hex").slice(0, 12) : "";
  }

  /** The values of the variables, for generated code; all "" if `check` throws. */
  get vars(): readonly string[] {
    return this.#current.values;
  }

  /** Called by generated code. Throws a RangeError for an invalid policy. */
  entry(name: string, policy: Policy): ReadEntry {
    const known = withDefaults(name, policy);
    return {
      read: (key, tags = []) => {
        const { error } = this.#current;
        return error === undefined ? { ...known, key, tags } : { ...known, key, tags, error };
      },
      refuse: (hole, value) => ({ ...known, key: "", tags: [], error: `the read ${name}: ${hole} is ${String(value)}, and the map makes no such key stale` }),
    };
  }

  get #current() {
    return (this.#now ??= this.#resolve(process.env));
  }

  #resolve(env: Env): { values: string[]; error?: string } {
    const errors: string[] = [];
    const values = this.#vars.map(({ name, text, oneOf }) => {
      let unset: string | undefined;
      const value = text.replace(/\$\{(.*?)(?::-(.*?))?\}/gs, (_, variable: string, instead?: string) => {
        const found = env[variable];
        if (!found && instead !== undefined) return instead;
        if (found === undefined || (found === "" && oneOf)) unset ??= variable;
        return found ?? "";
      });
      if (unset !== undefined) errors.push(`the environment variable ${unset} is not set, and the var ${name} of the map needs it`);
      else if (value === "") errors.push(`the var ${name} of the map is empty`);
      else if (oneOf && !oneOf.includes(value)) errors.push(`the var ${name} of the map is ${JSON.stringify(value)}: must be one of ${oneOf.join(", ")}`);
      return value;
    });
    return errors.length ? { values: values.map(() => ""), error: errors.join("\n") } : { values };
  }
}

/** Called by generated code: the text of an integer of 64 bits, undefined for anything else. */
export function intText(value: Id): string | undefined {
  const text = String(value);
  if (!/^(0|-?[1-9][0-9]{0,18})$/.test(text) || (typeof value === "number" && !Number.isSafeInteger(value))) return undefined;
  return BigInt.asIntN(64, BigInt(text)) === BigInt(text) ? text : undefined;
}

/** Called by generated code: text of 1 to 255 code points, well-formed, undefined for anything else. */
export function rowText(value: Id): string | undefined {
  if (typeof value === "number" ? !Number.isSafeInteger(value) : typeof value !== "string" && typeof value !== "bigint") return undefined;
  const text = String(value);
  return text !== "" && text.isWellFormed() && (text.length <= 255 || [...text].length <= 255) ? text : undefined;
}

/** Called by generated code: a UUID in lower case, undefined for anything else. */
export function uuidText(value: string): string | undefined {
  const text = String(value).toLowerCase();
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text) ? text : undefined;
}
