import { Backend, Slot, isFault, note, type Waiter } from "./backend.js";
import { State, formatEntry, formatValue, hashOf, judge, parseValue, type Entry, type Versions } from "./entry.js";
import { Leases, type Claim } from "./lease.js";
import { leaseKey, stampable } from "./names.js";
import { ClosedError, LoadTimeoutError, withDefaults } from "./options.js";
import type { CacheOptions, FetchOptions, Load, Loader, ManyLoader, ReadStatistics, Result, Settings, Source, Statistics } from "./options.js";
import type { Read } from "./read.js";
import { toError } from "./redis.js";
import { parseToken, settled } from "./token.js";

// ms: the pause between loads of an expired value after one has failed, and between two log messages of a kind
export const loadPause = 1000;
const complaintPause = 60_000;
const mostRounds = 4; // of waiting for others' loads
const mostNoted = 65_536; // keys, tags or tokens

/** What Redis has under a key, or why that is unknown. */
interface Reading {
  readonly state: State;
  readonly entry?: Entry | undefined;
  readonly bytes?: Buffer;
  readonly error?: Error;
}

/** The end of a flight. */
interface Outcome {
  readonly value?: unknown;
  readonly failed?: boolean;
  readonly error?: unknown;
  /** The number of the load, 0 if none began. */
  readonly started: number;
  /** Redis stored the value, and the versions of its tags were then unchanged. */
  readonly accepted?: boolean;
  readonly tags?: Versions;
}

/** One load of a key, which callers may share. Those that cannot use the outcome share the next one. */
class Flight {
  end!: (outcome: Outcome) => void;
  readonly ended = new Promise<Outcome>((end) => (this.end = end));
  next?: Flight;
}

class Fill implements Load {
  settings: { tags: string[]; ttl?: number; skip: boolean } = { tags: [], skip: false };

  constructor(readonly signal: AbortSignal) {}

  // properties, so that a loader can take them out: ({ signal, tag }) => ...
  readonly skip = () => void (this.settings.skip = true);
  readonly tag = (...tags: string[]) => {
    this.settings.tags.push(...tags);
    if (tags.includes("")) this.skip(); // what depends on an unknown cannot be kept
  };
  readonly ttl = (ms: number) => {
    this.settings.ttl = ms;
    if (!(ms >= 1)) this.skip();
  };
}

type Resolve = (value: unknown, source: Source, stale: boolean) => void;
type Reject = (error: unknown) => void;

/** One call for one key. */
interface Query extends Waiter {
  readonly read: Read;
  readonly loader: Loader<unknown>;
  readonly resolve: Resolve;
  readonly reject: Reject;
  /** The number of the latest load when the call came. */
  readonly arrival: number;
  /** It shares no load. */
  alone: boolean;
  /** Nothing that others have loaded counts: the caller's writes are not settled. */
  unsettled: boolean;
}

/** Reads and stores values in Redis. Make one per process, and close it at the end. */
export class Cache {
  readonly #backend: Backend;
  readonly #leases: Leases;
  readonly #settings: Settings;
  readonly #stats = { hits: 0, misses: 0, stale: 0, loads: 0, loadErrors: 0, sets: 0, refused: 0, errors: 0, unsettled: 0, uncached: 0 };
  readonly #reads = new Map<string, ReadStatistics>();
  readonly #flights = new Map<string, Flight>();
  readonly #running = new Set<Promise<void>>();
  readonly #pauses = new Map<string, number>(); // by key
  readonly #seen = new Map<string, { version: string; at: number }>(); // by tag
  readonly #verdicts = new Map<string, { settled: boolean; until: number }>(); // by token
  readonly #complaints = new Map<string, number>();
  readonly #stops = new Set<(error: Error) => void>(); // of loads
  readonly #life = new AbortController();
  #loads = 0; // begun: orders loads and callers
  #closed: ClosedError | undefined;

  /** Sends nothing: an unavailable Redis shows at the first call. Throws a TypeError or a RangeError for an invalid option. */
  constructor(options: CacheOptions) {
    this.#settings = withDefaults(options);
    this.#backend = new Backend(this.#settings, (message, details) => this.#complain(message, details));
    this.#leases = new Leases(this.#backend, this.#settings, this.#life.signal);
  }

  /**
   * Returns the value of a read from Redis, or loads and stores it. undefined: the loader found nothing.
   * It throws the loader's error, a LoadTimeoutError, the reason of the signal, or a ClosedError, but no
   * error of Redis. Callers of one key can get the same object, so do not change it. The value is what
   * its JSON says, even for the caller that has loaded it: a Date is text.
   */
  fetch<T>(read: Read<T>, loader: Loader<T>, options?: FetchOptions): Promise<T> {
    return new Promise((resolve, reject) => this.#begin(read, loader, options, resolve as Resolve, reject, false));
  }

  /** Is like `fetch`, and also returns the source of the value. */
  fetchResult<T>(read: Read<T>, loader: Loader<T>, options?: FetchOptions): Promise<Result<T>> {
    return new Promise((resolve, reject) => {
      this.#begin(read, loader, options, (value, source, stale) => resolve({ value: value as T, source, stale }), reject, false);
    });
  }

  /**
   * Is like `fetch` for several reads, with one round trip for all, and one call of the loader for those
   * that are missing together. Both maps are by the key of the read, and lack what does not exist. It
   * shares no loads with other calls. If a load fails, it throws. A read whose values the map refuses has
   * the key "" and a separate call. The result has the value of one such read, but of several none: use
   * `fetch` for these.
   */
  async fetchMany<T>(reads: readonly Read<T>[], loader: ManyLoader<T>, options?: FetchOptions): Promise<Map<string, T>> {
    let group: { missing: Read<T>[]; fills: Fill[]; values: Promise<ReadonlyMap<string, T>> } | undefined;
    /** Loads a key together with the others of this tick. The settings of one load are for all of its keys. */
    const load = async (read: Read<T>, fill: Fill): Promise<T | undefined> => {
      if (read.key === "") return (await loader([read], fill)).get("");
      const { missing, fills, values } = (group ??= {
        missing: [],
        fills: [],
        values: new Promise<void>((next) => process.nextTick(next)).then(() => {
          const { missing, fills } = group!;
          group = undefined;
          for (const other of fills) other.settings = fill.settings;
          return loader(missing, fill);
        }),
      });
      missing.push(read);
      fills.push(fill);
      return (await values).get(read.key);
    };
    if (!Array.isArray(reads)) throw new TypeError("fetchMany: the first argument must be a list of reads");
    const distinct = [...new Map(reads.map((read: Read<T> | undefined) => [read?.key || read, read as Read<T>])).values()];
    const values = distinct.map((read) => {
      return new Promise<unknown>((resolve, reject) => this.#begin(read, (fill) => load(read, fill as Fill), options, resolve, reject, true));
    });
    const found = (await Promise.all(values)).map((value, i): [string, T] => [distinct[i]!.key, value as T]);
    const ambiguous = distinct.filter(({ key }) => key === "").length > 1;
    return new Map(found.filter(([key, value]) => value !== undefined && !(key === "" && ambiguous)));
  }

  /** Returns what was counted so far. */
  stats(): Statistics {
    const reads = Object.fromEntries(Array.from(this.#reads, ([name, counts]) => [name, { ...counts }]));
    return { ...this.#stats, strays: this.#backend.strays, shortLeases: this.#leases.shortened, reads };
  }

  /** Returns why values are not cached as configured, or undefined. It sends nothing. */
  healthy(): Error | undefined {
    const [{ lease }, { ttl }] = [this.#settings, this.#leases];
    const short = ttl < lease ? new Error(`lease is ${lease} ms, and the map's is ${ttl} ms, which counts: lower it, or raise lease in the map`) : undefined;
    return this.#closed ?? this.#backend.error ?? short;
  }

  /** Ends loads and connections. Calls under way and later ones get a ClosedError. */
  async close(): Promise<void> {
    this.#closed ??= new ClosedError("the cache is closed");
    this.#life.abort(this.#closed);
    for (const stop of this.#stops) stop(this.#closed);
    while (this.#running.size) await Promise.all(this.#running);
    this.#backend.close();
  }

  #begin(read: Read, loader: Loader<unknown>, options: FetchOptions | undefined, resolve: Resolve, reject: Reject, alone: boolean): void {
    if (typeof (read as Read | undefined)?.key !== "string" || !Array.isArray(read.tags)) return reject(new TypeError("fetch: the first argument is not a read; use a function of a generated module, or readOf"));
    if (typeof loader !== "function") return reject(new TypeError(`fetch: the loader of ${title(read)} is not a function`));
    let ended = this.#settings.hooks?.fetch?.(read);
    const signal = options?.signal;
    if (ended || signal) {
      const [yes, no] = [resolve, reject];
      const leave = () => reject(signal!.reason);
      const end = (error: unknown, source?: Source, stale?: boolean) => {
        signal?.removeEventListener("abort", leave);
        ended?.(error, source, stale);
        ended = undefined;
      };
      resolve = (...result) => (end(undefined, result[1], result[2]), yes(...result));
      reject = (error) => (end(error), no(error));
      signal?.addEventListener("abort", leave, { once: true });
    }
    if (this.#closed ?? signal?.aborted) return reject(this.#closed ?? signal!.reason);
    if (read.error !== undefined || !read.key.isWellFormed()) {
      this.#stats.uncached++;
      this.#complain("a value is loaded and not cached: no invalidation reaches it", read.error ?? `the key ${JSON.stringify(read.key)}`);
      this.#load(read, loader).then(({ value }) => resolve(value, "loader", false), reject);
      return;
    }
    const { key, tags } = read;
    const answered: Waiter["answered"] = (slot, versions) => this.#answer(query, slot, versions);
    const query: Query = { key, tags, read, loader, resolve, reject, answered, arrival: this.#loads, alone, unsettled: false };
    if (options?.token) void this.#constrain(query, options.token);
    else this.#backend.read(query);
  }

  /** Reads for a caller that must see its own writes. */
  async #constrain(query: Query, token: string): Promise<void> {
    try {
      query.unsettled = !(await this.#isSettled(token));
    } catch (error) {
      query.unsettled = true;
      this.#complain("what a caller has written is not known to be settled, so it is loaded each time", error);
    }
    query.alone ||= query.unsettled;
    if (query.unsettled) this.#stats.unsettled++;
    this.#backend.read(query);
  }

  /** Reports whether nothing that a token names can be old in Redis any more, or the token has ended. */
  async #isSettled(text: string): Promise<boolean> {
    const known = this.#verdicts.get(text);
    if (known) return known.settled || performance.now() >= known.until;
    let token: ReturnType<typeof parseToken>;
    try {
      token = parseToken(text);
    } catch {
      return true;
    }
    const { primary } = this.#settings;
    if (primary === undefined) throw new Error("there is no CacheOptions.primary to ask");
    const asked = performance.now();
    const verdict = await this.#limited(() => "a question to CacheOptions.primary about a write token", () => settled(primary, token));
    if (verdict.settled || verdict.error !== undefined) note(this.#verdicts, text, { settled: verdict.settled, until: asked + verdict.left * 1000 }, mostNoted);
    if (verdict.error !== undefined && verdict.left > 0) throw new Error(verdict.error);
    return verdict.settled || verdict.left === 0;
  }

  #answer(query: Query, slot: Slot, versions: Versions): void {
    const entry = slot.entry(this.#settings.integers);
    if (judge(entry, query.tags, versions, this.#backend.alive.now()) === State.fresh && !query.unsettled) {
      this.#count(query.read.name, State.fresh);
      return query.resolve((entry as Entry).value, "redis", false);
    }
    this.#reading(query.tags, slot, versions)
      .then((found) => {
        if (query.unsettled && found.state !== State.foreign) found = { ...found, state: State.absent };
        this.#count(query.read.name, found.state);
        return this.#settle(query, found);
      })
      .catch(query.reject);
  }

  #count(name: string, state: State): void {
    let read = this.#reads.get(name);
    if (read === undefined) this.#reads.set(name, (read = { hits: 0, misses: 0, stale: 0 }));
    for (const counts of [this.#stats, read]) {
      counts[state >= State.stale ? "hits" : "misses"]++;
      if (state === State.stale) counts.stale++;
    }
  }

  /** Returns the state of what was read. It asks for the versions of tags that only the entry has. */
  async #reading(tags: readonly string[], slot: Slot, versions: Versions): Promise<Reading> {
    const bytes = slot.reply;
    if (bytes === null) return { state: State.absent };
    if (bytes instanceof Error) return { state: isFault(bytes) ? State.absent : State.foreign, error: bytes };
    const entry = slot.entry(this.#settings.integers);
    const state = judge(entry, tags, versions, this.#backend.alive.now());
    if (!Array.isArray(state)) return { state, bytes, entry: entry === "foreign" ? undefined : entry };
    const more = await this.#backend.versions(state);
    return more instanceof Error ? { state: State.absent, error: more } : this.#reading(tags, slot, new Map([...versions, ...more]));
  }

  /** Reads the key of a query again. */
  #again({ key, tags }: Query): Promise<Reading> {
    return new Promise((resolve) => {
      this.#backend.read({ key, tags, answered: (slot, versions) => resolve(this.#reading(tags, slot, versions)) });
    });
  }

  /** Answers a query that has found no fresh value at first. */
  async #settle(query: Query, found: Reading): Promise<void> {
    const { key } = query;
    let before: Flight | undefined;
    for (let round = 0; ; round++) {
      if (round > 0) found = await this.#again(query);
      const value = found.entry?.value;
      if (found.state === State.fresh) return query.resolve(value, "redis", false);
      const paused = (this.#pauses.get(key) ?? 0) > performance.now();
      if (found.state === State.stale || (found.state === State.onError && paused)) {
        if (!paused && !this.#flights.has(key)) this.#launch(query, this.#join(key)[0], found, true);
        return query.resolve(value, "redis", true);
      }
      const alone = query.alone || round === mostRounds || found.state === State.foreign;
      const [flight, own] = alone ? [new Flight(), true] : this.#join(key, before);
      if (own) this.#launch(query, flight, found, false);
      const outcome = await flight.ended;
      if (outcome.failed && found.state === State.onError) {
        const again = await this.#again(query);
        if (again.state >= State.onError && again.bytes!.equals(found.bytes!)) return query.resolve(value, "redis", true);
      }
      if (own || accepts(query, outcome)) {
        return outcome.failed ? query.reject(outcome.error) : query.resolve(outcome.value, outcome.started ? "loader" : "redis", false);
      }
      before = flight;
    }
  }

  /** Returns the flight to wait for, after one whose outcome is of no use, and whether it is the caller's to launch. */
  #join(key: string, before?: Flight): [Flight, boolean] {
    if (before?.next) return [before.next, false];
    const running = this.#flights.get(key);
    const flight = running ?? new Flight();
    this.#flights.set(key, flight);
    if (before) before.next = flight;
    return [flight, running === undefined];
  }

  /** Lets no more callers join a flight. */
  #seal(key: string, flight: Flight): void {
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }

  /** Lets the end of the cache wait for something. */
  #track(running: Promise<void>): void {
    this.#running.add(running);
    void running.finally(() => this.#running.delete(running));
  }

  /** Runs a flight. If it is `unasked`, all callers have an answer, so it is of use only if it can store. */
  #launch(query: Query, flight: Flight, found: Reading, unasked: boolean): void {
    const running = this.#fly(query, flight, found, unasked)
      .catch((error: unknown): Outcome => ({ failed: true, error, started: 0 }))
      .then((outcome) => {
        this.#seal(query.key, flight);
        if (outcome.failed) note(this.#pauses, query.key, performance.now() + loadPause * (0.75 + Math.random() / 2), mostNoted);
        flight.end(outcome);
      });
    this.#track(running);
  }

  async #fly(query: Query, flight: Flight, found: Reading, unasked: boolean): Promise<Outcome> {
    const { key, read } = query;
    const tags = [...new Set([...read.tags, ...Object.keys(found.entry?.tags ?? {})])]; // the loader may name them again
    const claim: Claim = {
      key,
      tags: stampable(tags) ? tags : read.tags,
      longest: Math.max(read.ttl + Math.max(read.stale, read.staleOnError), read.negative) * (1 + read.jitter),
      patient: !query.unsettled,
      hash: found.bytes ? hashOf(found.bytes) : "",
      versions: new Map(),
    };
    let failure: unknown = found.error; // why there is no lease, or Redis has not taken the value
    if (!isFault(failure) && found.state !== State.foreign && leaseKey(key) !== undefined && stampable(read.tags)) {
      try {
        const other = await this.#leases.take(claim, async (bytes) => {
          const stored = await this.#reading(read.tags, new Slot(bytes), claim.versions);
          if (isFault(stored.error) || stored.state === State.foreign || (stored.state === State.fresh && !query.unsettled)) return stored;
          claim.hash = hashOf(bytes);
          return undefined;
        });
        if (other?.state === State.fresh) return { value: other.entry!.value, started: 0 };
        failure = other?.error;
      } catch (error) {
        failure = error;
      }
    }
    if (claim.lease === undefined && unasked) return { started: 0 };
    // Nothing will be stored, so the result is only for callers from before the load. While Redis is
    // away, later ones wait too, and share the next flight.
    if (claim.lease === undefined && !isFault(failure)) this.#seal(key, flight);
    const started = ++this.#loads;
    const begun = performance.now();
    let loaded: { value: unknown; fill: Fill };
    try {
      loaded = await this.#load(read, query.loader);
    } catch (error) {
      await this.#leases.release(claim, false);
      return { failed: true, error, started };
    }
    let { value } = loaded;
    let text: string | undefined;
    try {
      const json = value === undefined ? "null" : formatValue(value, this.#settings.integers);
      if (value !== undefined) value = parseValue(json, this.#settings.integers); // as callers that find it in Redis get it
      text = json;
    } catch (error) {
      failure = toError(error);
      this.#complain("a value cannot be stored", new TypeError(`the value of ${title(read)}: ${toError(error).message}`, { cause: error }));
    }
    let stored: Pick<Outcome, "accepted" | "tags"> | undefined;
    let waited = false; // for an answer to the store that did not come
    try {
      if (claim.lease !== undefined && text !== undefined) stored = await this.#store(read, flight, claim, loaded.fill, started, value === undefined, text, Math.round(performance.now() - begun));
    } catch (error) {
      failure = error;
      waited = isFault(error);
    }
    if (failure !== undefined) this.#stats.errors++;
    if (stored === undefined) {
      const released = this.#leases.release(claim, true);
      if (waited) this.#track(released); // callers do not wait once more
      else await released; // before callers get the value, who may read again
    }
    return { value, started, ...stored };
  }

  /** Stores a value under the lease. It returns undefined if Redis has not taken it. */
  async #store(read: Read, flight: Flight, claim: Claim, { settings }: Fill, started: number, negative: boolean, text: string, d: number): Promise<Pick<Outcome, "accepted" | "tags"> | undefined> {
    let { ttl, stale, staleOnError } = read;
    let spread = read.jitter * (2 * Math.random() - 1);
    if (negative) [ttl, stale, staleOnError] = [read.negative, 0, 0];
    else if (settings.ttl !== undefined) [ttl, stale, staleOnError, spread] = [settings.ttl, 0, 0, -Math.abs(spread)];
    if (settings.skip || ttl < 1) return undefined;
    const tags = await this.#versions(read.tags, claim, settings.tags, started, 1.25 * (ttl + stale + staleOnError));
    if (tags === undefined) return undefined;
    const life = Math.max(Math.floor(ttl * (1 + spread)), 1);
    const e = Math.floor(this.#backend.alive.now()) + life;
    const until = (ms: number) => (ms > 0 ? e + Math.floor(ms) : 0);
    const lease = claim.lease!;
    const head = { e, b: lease.slice(lease.lastIndexOf(":") + 1), s: until(stale), o: until(staleOnError), d, n: negative ? 1 : 0 };
    this.#seal(claim.key, flight); // later callers ask Redis
    const { stored, same } = await this.#leases.fill(claim, formatEntry(head, tags, text), life + Math.floor(Math.max(stale, staleOnError)), tags);
    this.#stats[stored ? "sets" : "refused"]++;
    if (!stored) return undefined;
    return { accepted: same, tags };
  }

  /** Returns the versions of the tags to store, from before the load, or undefined without one of them. Throws an error of Redis. */
  async #versions(own: readonly string[], claim: Claim, named: readonly string[], started: number, longest: number): Promise<Versions | undefined> {
    const late = [...new Set(named.filter((tag) => !claim.versions.has(tag)))];
    if (!stampable(late)) return undefined;
    const more: Versions = late.length ? await this.#leases.versions(late, longest) : claim.versions;
    let known = true;
    for (const tag of late) {
      const version = more.get(tag)!;
      const seen = this.#seen.get(tag);
      if (seen?.version === version) known &&= seen.at < started;
      else {
        note(this.#seen, tag, { version, at: this.#loads }, mostNoted);
        known = false;
      }
    }
    const versions = new Map([...own, ...named].map((tag) => [tag, claim.versions.get(tag) ?? more.get(tag)!]));
    const complete = ![...versions.values()].includes("");
    if (!complete && claim.error) throw claim.error;
    return known && complete ? versions : undefined;
  }

  /** Calls a loader within its time. */
  async #load(read: Read, loader: Loader<unknown>): Promise<{ value: unknown; fill: Fill }> {
    this.#stats.loads++;
    const ended = this.#settings.hooks?.load?.(read);
    try {
      const loaded = await this.#limited(() => `the loader of ${title(read)}`, async (signal) => {
        const fill = new Fill(signal);
        return { value: await loader(fill), fill };
      });
      ended?.(undefined);
      return loaded;
    } catch (error) {
      this.#stats.loadErrors++;
      ended?.(error);
      throw error;
    }
  }

  /** Runs something within the time of a load. `what` names it. */
  #limited<T>(what: () => string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { loadTimeout } = this.#settings;
    const ending = new AbortController(); // not of AbortSignal.any, which keeps each signal as long as that of the cache
    return new Promise((resolve, reject) => {
      if (this.#closed) throw this.#closed;
      const ended = () => {
        clearTimeout(timer);
        this.#stops.delete(stop);
      };
      const stop = (error: Error) => {
        ended();
        ending.abort(error);
        reject(error);
      };
      const timer = setTimeout(() => stop(new LoadTimeoutError(`${what()} took more than ${loadTimeout} ms; raise loadTimeout, or if a loader fetches its own key, which waits for itself, remove that`)), loadTimeout);
      this.#stops.add(stop);
      void work(ending.signal).then(resolve, reject).finally(ended);
    });
  }

  /** Logs a message at most once per minute. */
  #complain(message: string, details: unknown): void {
    if (performance.now() < (this.#complaints.get(message) ?? 0)) return;
    this.#complaints.set(message, performance.now() + complaintPause);
    this.#settings.logger.warn(message, details);
  }
}

/** Reports whether the outcome of another caller's load can answer a query. */
const accepts = ({ tags: wanted, arrival }: Query, { accepted, tags, started, failed }: Outcome) =>
  (accepted && wanted.every((tag) => tags!.has(tag))) || started > arrival || (started === 0 && failed);

const title = ({ name, key }: Read) => `the read ${name} of the key ${JSON.stringify(key)}`;
