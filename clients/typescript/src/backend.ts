import { Alive, type Question } from "./alive.js";
import { parseEntry, type Integers, type Parsed, type Versions } from "./entry.js";
import { stampKey } from "./names.js";
import type { Settings } from "./options.js";
import { isReply, toError, type Link } from "./redis.js";
import { whole, type Command } from "./scripts.js";

/** Why Redis has not answered a command. */
export class RedisError extends Error {
  override readonly name = "RedisError";

  constructor(
    message: string,
    /** Redis may have got the command, or get it yet. */
    readonly sent: boolean,
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

/** Workers no longer write to the server that answered. */
class LeftError extends RedisError {}

/** Reports whether Redis may run a command whose reply is an error. */
export const mayRun = (reply: unknown) => reply instanceof Error && (reply instanceof RedisError ? reply.sent : !isReply(reply));

/** Reports whether a reply did not come, or is of a server that serves no client now. */
export const isFault = (reply: unknown): reply is Error =>
  reply instanceof Error && (reply instanceof RedisError || !isReply(reply) || /^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|NOAUTH|WRONGPASS|NOREPLICAS) /.test(reply.message));

export const isError = (reply: unknown): reply is Error => reply instanceof Error;
const isUnknownScript = (reply: unknown) => reply instanceof Error && reply.message.startsWith("NOSCRIPT");

/** Returns the version of a tag from the reply to a GET or to stamp.lua, "" for none. */
export const versionOf = (reply: unknown) => (reply instanceof Buffer ? reply.toString() : "");

/** What Redis has under one key: read and parsed once for all callers of a tick. */
export class Slot {
  readonly waiters: Waiter[] = [];
  #parsed: Parsed | null = null;

  /** The reply is null for nothing, an Error if it is unknown or what the key holds is not a string. */
  constructor(public reply: Buffer | null | Error = null) {}

  entry(integers: Integers): Parsed {
    if (this.reply instanceof Error) return "foreign";
    if (this.#parsed === null) this.#parsed = this.reply === null ? undefined : parseEntry(this.reply, integers);
    return this.#parsed;
  }
}

/** One read of a key and the versions of tags. */
export interface Waiter {
  readonly key: string;
  readonly tags: readonly string[];
  /** Called once. `versions` has at least those of `tags`. It must not throw. */
  answered(slot: Slot, versions: Versions): void;
}

type Done = (replies: unknown[]) => void;

/** Commands of one caller, which stay together. */
interface Run {
  readonly commands: readonly Command[];
  readonly end: Done;
}

/** What is sent together: commands and reads, or requests for leases. */
class Batch {
  readonly slots = new Map<string, Slot>();
  readonly tags = new Set<string>();
  readonly runs: Run[] = [];
  weight = 0;
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  /** Adds commands if they fit. Their answer is expected to have `units`. */
  addRun(run: Run, units: number): boolean {
    const fits = this.#fits(run.commands.reduce((sum, command) => sum + weigh(command), units));
    if (fits) this.runs.push(run);
    return fits;
  }

  /** Adds a read if it fits. Its value is expected to have `units`. */
  addRead(waiter: Waiter, units: number): boolean {
    let slot = this.slots.get(waiter.key);
    let weight = slot === undefined ? 1 + units : 0;
    for (const tag of waiter.tags) if (!this.tags.has(tag)) weight++;
    if (!this.#fits(weight)) return false;
    if (slot === undefined) this.slots.set(waiter.key, (slot = new Slot()));
    slot.waiters.push(waiter);
    for (const tag of waiter.tags) this.tags.add(tag);
    return true;
  }

  /** Adds a weight if it fits, as the first does. */
  #fits(weight: number): boolean {
    if (this.weight > 0 && this.weight + weight > this.#most) return false;
    this.weight += weight;
    return true;
  }
}

/** The commands that Redis may refuse separately. */
export type Kind = "read" | "lease" | "tag version" | "value";

// The maximum of a pipeline, unless it is for one caller: 500 commands, or 250 KiB of values, since a
// command weighs 1, and 1 more for each `unit` bytes. While more than that is under way, the others wait.
const mostWeight = 500;
const unit = 512;
const mostUnits = 64; // expected of a value whose size is unknown
const mostLarge = 16_384; // keys whose size is known
const stall = 5; // ms by which a timer is late if this process did not run
const searchLife = 1000; // ms
const noVersions = new Map<string, string>();

/**
 * Sends commands to Redis on its own connections: those of one tick in one pipeline, or several for a
 * burst. Each pipeline has its own timeout. While Redis is known to be away, none is sent.
 */
export class Backend {
  readonly alive: Alive;
  /** Answers that were not used, since workers have left the server. */
  strays = 0;
  readonly #settings: Settings;
  readonly #cluster: boolean;
  #link: Promise<Link> | undefined;
  #ready: Link | undefined; // that of #link
  readonly #refused = new Map<Kind, Error>();
  readonly #complain: (message: string, details: unknown) => void;
  // what is to be sent in this tick, or when less is under way
  readonly #reads: Waiter[] = [];
  readonly #runs: Run[] = [];
  readonly #leases: Run[] = [];
  #scheduled = false;
  #leasesNext = false; // commands and reads were sent before
  #underway = 0; // the weight of what was sent and has no answer
  readonly #large = new Map<string, number>(); // units of known values by key, from one on
  #usual = 4; // units expected of a value whose key is not there
  readonly #trips = new Set<{ readonly due: number; readonly late: (error: Error) => void; readonly sent: boolean }>(); // the oldest first
  #timer: NodeJS.Timeout | undefined;
  #failed = 0; // in a row
  #until = 0; // when to try again, after too many
  #error: Error | undefined; // the latest fault
  #search: { begun: number; moved: Promise<boolean> } | undefined;
  #closed = false;

  constructor(settings: Settings, complain: (message: string, details: unknown) => void) {
    this.#settings = settings;
    this.#complain = complain;
    this.#cluster = settings.redis.cluster;
    this.alive = new Alive(settings.source, this.#cluster);
  }

  /** Reads a key and tag versions together with the other reads of this tick. */
  read(waiter: Waiter): void {
    this.#reads.push(waiter);
    this.#schedule();
  }

  /**
   * Sends commands together with the others of this tick. Each reply is what Redis answers, or an Error.
   * Behind requests for `leases`, the same pipeline asks where workers write, and how long leases may be.
   */
  run(commands: readonly Command[], leases = false): Promise<unknown[]> {
    this.#schedule();
    return new Promise((end) => (leases ? this.#leases : this.#runs).push({ commands, end }));
  }

  /** Returns the versions of tags, or why they are unknown. */
  async versions(tags: readonly string[]): Promise<Versions | Error> {
    const replies = await this.run(tags.map((tag) => ["get", stampKey(tag)]));
    return replies.find(isFault) ?? new Map(tags.map((tag, i) => [tag, versionOf(replies[i])]));
  }

  /** Why nothing is sent, or what Redis refuses, or undefined. */
  get error(): Error | undefined {
    if (this.#away) return this.#error;
    for (const [kind, error] of this.#refused) return new Error(`values are not cached: Redis refuses a ${kind}: ${error.message}`, { cause: error });
    return undefined;
  }

  /** Notes the size of a value, and returns it in units. */
  sized(key: string, bytes: number): number {
    const units = Math.floor(bytes / unit);
    if (units > 0) note(this.#large, key, units, mostLarge);
    else this.#large.delete(key);
    return units;
  }

  /** Notes whether Redis refuses commands of a kind. Replies that did not come do not count. */
  note(kind: Kind, replies: readonly unknown[]): void {
    const refusal = replies.find((reply): reply is Error => isError(reply) && !(reply instanceof RedisError) && isReply(reply));
    if (refusal !== undefined) {
      this.#refused.set(kind, refusal);
      this.#complain(`values are not cached: Redis refuses a ${kind}`, refusal);
    } else if (replies.length > 0 && !replies.some(isError)) this.#refused.delete(kind);
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  get #away(): boolean {
    return this.#failed >= this.#settings.failures;
  }

  get #waits(): boolean {
    return this.#reads.length + this.#runs.length + this.#leases.length > 0;
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    // after all callers of this tick, also those that an answer has woken
    process.nextTick(() => {
      this.#scheduled = false;
      this.#pump();
    });
  }

  /** Sends what waits, while not too much is under way: in turn requests for leases, and commands with reads. */
  #pump(): void {
    while (this.#waits && this.#underway <= mostWeight) {
      const leases = this.#leasesNext;
      this.#leasesNext = !leases;
      if (leases ? this.#leases.length > 0 : this.#runs.length + this.#reads.length > 0) this.#send(this.#take(leases), leases);
    }
  }

  /** Takes a batch of what waits, the commands first: they end loads, and free leases. */
  #take(leases: boolean): Batch {
    const batch = new Batch(this.#cluster ? 1 : mostWeight);
    const usual = Math.floor(this.#usual);
    const runs = leases ? this.#leases : this.#runs;
    const expected = leases ? usual : 0; // Redis may answer a request for a lease with a value
    shiftWhile(runs, (run) => batch.addRun(run, expected));
    if (!leases && runs.length === 0) shiftWhile(this.#reads, (waiter) => batch.addRead(waiter, this.#large.get(waiter.key) ?? usual));
    return batch;
  }

  #send(batch: Batch, leases: boolean): void {
    const { slots, tags, runs, weight } = batch;
    const names = [...slots.keys()];
    for (const tag of tags) names.push(stampKey(tag));
    const apart = this.#cluster || names.length < 2;
    const reads: Command[] = apart ? names.map((name) => ["get", name]) : [["mget", ...names]];
    const end = (values: unknown[], others: unknown[]) => {
      this.#underway -= weight;
      this.#answer(batch, values, others);
      if (this.#waits) this.#schedule();
    };
    this.#underway += weight;
    this.#exchange(runs.length ? [...reads, ...runs.flatMap(({ commands }) => commands)] : reads, names[0], leases, (replies) => {
      const others = replies.splice(reads.length);
      if (apart) return end(replies, others);
      const [values] = replies;
      // perhaps for one of several keys, which the user may not read
      const refused = values instanceof Error && values.message.startsWith("NOPERM");
      if (refused) return this.#exchange(names.map((name) => ["get", name]), undefined, false, (again) => end(again, others));
      end(Array.isArray(values) ? (values as unknown[]) : names.map(() => values), others);
    });
  }

  #answer({ slots, tags, runs }: Batch, values: unknown[], replies: unknown[]): void {
    let i = 0;
    for (const slot of slots.values()) slot.reply = values[i++] as Slot["reply"];
    let fault: Error | undefined;
    const versions = tags.size ? new Map<string, string>() : noVersions;
    for (const tag of tags) {
      const value = values[i++];
      if (isFault(value)) fault = value;
      versions.set(tag, versionOf(value));
    }
    this.note("read", values);
    this.#learn(slots);
    for (const slot of slots.values()) {
      for (const waiter of slot.waiters) waiter.answered(fault && waiter.tags.length ? new Slot(fault) : slot, versions);
    }
    for (const { commands, end } of runs) end(replies.splice(0, commands.length));
  }

  /** Notes the sizes of values, for later batches. If they came too late, a batch was too large. */
  #learn(slots: ReadonlyMap<string, Slot>): void {
    let sum = 0;
    let count = 0;
    let late = false;
    for (const [key, { reply }] of slots) {
      late ||= reply instanceof RedisError && reply.sent;
      if (reply instanceof Error) continue;
      const known = this.#large.has(key);
      const units = this.sized(key, reply === null ? 0 : reply.length);
      if (known) continue; // #usual is for the other keys
      sum += Math.min(units, mostUnits);
      count++;
    }
    if (late) this.#usual = Math.min(2 * this.#usual + 1, mostUnits);
    else if (count > 0) this.#usual += (sum / count - this.#usual) / 4;
  }

  /** Sends commands. If no answer may be used, all have the same error. `key` is one that they read, if any. */
  #exchange(commands: readonly Command[], key: string | undefined, leases: boolean, done: Done): void {
    const away = this.#away;
    if (this.#closed || (away && performance.now() < this.#until)) return done(commands.map(() => new RedisError("Redis is away", false, this.#error)));
    if (away) this.#until = performance.now() + this.#settings.pause; // this one tries
    const ended = this.#settings.hooks?.redis?.(commands.length);
    const again = this.#failed > 0;
    const end: Done = (replies) => {
      const fault = replies.find(isFault);
      if (fault === undefined) this.#worked();
      else if (!(fault instanceof LeftError)) this.#failure(fault, again);
      ended?.(fault);
      done(replies);
    };
    const fail = (error: unknown) => end(commands.map(() => error));
    if (this.#ready) this.#sendTo(this.#ready, commands, key, leases, end, fail);
    else this.#connected().then((link) => this.#sendTo(link, commands, key, leases, end, fail), fail);
  }

  /** Sends a pipeline, with the question where workers write if that is due. */
  #sendTo(link: Link, commands: readonly Command[], key: string | undefined, leases: boolean, end: Done, fail: (error: unknown) => void): void {
    const question = this.alive.question(key, leases);
    let all = commands;
    // in front of reads, since a master may become a replica between the two
    if (question) all = leases ? [...commands, ...question.commands] : [...question.commands, ...commands];
    this.#trip(link, all, (replies) => {
      if (question === undefined && !replies.some(isUnknownScript)) return end(replies);
      const answers = replies.splice(leases ? commands.length : 0, all.length - commands.length);
      const checked = async () => {
        if (question) await this.#check(question, answers, key);
        return this.#withScripts(link, commands, replies);
      };
      checked().then(end, fail);
    });
  }

  /** Throws if an answer proves that the server must not be used. */
  async #check(question: Question, answers: unknown[], key: string | undefined): Promise<void> {
    const lost = answers.find(mayRun);
    if (lost !== undefined) throw lost;
    const presence = question.answer(answers);
    if (presence === "replica") throw new RedisError("READONLY the server is a replica, which is behind", true);
    if (presence === "old" && (await this.#moved(key))) {
      this.strays++;
      throw new LeftError("workers have left the server that answered", true);
    }
  }

  /** Sends scripts in full that the server does not have, and returns all replies. */
  async #withScripts(link: Link, commands: readonly Command[], replies: unknown[]): Promise<unknown[]> {
    const missing = [...replies.keys()].filter((i) => isUnknownScript(replies[i]));
    const more = missing.length ? await this.#sent(link, missing.map((i) => whole(commands[i]!))) : [];
    for (const [n, i] of missing.entries()) replies[i] = more[n];
    return replies;
  }

  /**
   * Finds out whether workers have left the server, or none runs: in the first case a new connection
   * leads to them, or to where they have written since, and is used from now on. Callers share the
   * result of one search per second.
   */
  #moved(key: string | undefined): Promise<boolean> {
    const begun = performance.now();
    if (this.#search === undefined || begun - this.#search.begun > searchLife) this.#search = { begun, moved: this.#searchOnce(key).catch(() => false) };
    return this.#search.moved;
  }

  async #searchOnce(key: string | undefined): Promise<boolean> {
    const known = this.alive.latest;
    const opening = this.#open();
    let other = false;
    try {
      const there = new Alive(this.#settings.source, false);
      const question = there.question(key, true)!;
      const presence = question.answer(await this.#sent(await this.#timed(opening), question.commands));
      if (presence === "replica") return true;
      other = there.latest !== undefined && there.latest !== known;
    } finally {
      if (!other) close(opening);
    }
    if (!other) return false;
    this.#settings.logger.warn("workers have left the server of a connection: another connection replaces it");
    this.#drop();
    this.#use(opening);
    return true;
  }

  #connected(): Promise<Link> {
    if (this.#link === undefined) this.#use(this.#open());
    return this.#timed(this.#link!);
  }

  #open(): Promise<Link> {
    const ended = () => {
      if (this.#link === opening) this.#link = this.#ready = undefined;
    };
    const opening = (async () => this.#settings.redis.open(10 * this.#settings.timeout, ended))(); // also what it throws is a rejection
    return opening;
  }

  #use(opening: Promise<Link>): void {
    this.#link = opening;
    this.#ready = undefined;
    this.alive.renew();
    const opened = (link: Link | undefined) => {
      if (this.#link !== opening) return;
      this.#ready = link;
      if (link === undefined) this.#link = undefined;
    };
    opening.then(opened, () => opened(undefined));
  }

  #drop(): void {
    if (this.#link) close(this.#link);
    this.#link = this.#ready = undefined;
  }

  #worked(): void {
    if (this.#failed === 0) return;
    if (this.#away) this.#settings.logger.warn("Redis is back");
    this.#failed = 0;
  }

  /** `again`: others had already failed when this one was sent. */
  #failure(error: Error, again: boolean): void {
    this.#error = error;
    if (again && this.#failed > 0) this.#dropWaiting(error);
    if (++this.#failed === this.#settings.failures) {
      this.#until = performance.now() + this.#settings.pause;
      this.#settings.logger.warn("Redis is away: every call loads", error);
    }
    if (this.#away || error.message.startsWith("READONLY")) this.#drop(); // a new connection may lead elsewhere
  }

  /** Answers what waits: it would wait for more timeouts. */
  #dropWaiting(cause: Error): void {
    const error = new RedisError(`not sent, since Redis has failed: ${cause.message}`, false, cause);
    for (const waiter of this.#reads.splice(0)) waiter.answered(new Slot(error), noVersions);
    for (const { commands, end } of [...this.#runs.splice(0), ...this.#leases.splice(0)]) end(commands.map(() => error));
  }

  #sent(link: Link, commands: readonly Command[]): Promise<unknown[]> {
    return new Promise((resolve) => this.#trip(link, commands, resolve));
  }

  #trip(link: Link, commands: readonly Command[], done: Done): void {
    const end = this.#limit((error) => done(commands.map(() => error)), true, done);
    try {
      link.send(commands, end);
    } catch (error) {
      end(commands.map(() => toError(error)));
    }
  }

  /** Waits for a connection no longer than for an answer. */
  #timed(opening: Promise<Link>): Promise<Link> {
    return new Promise((resolve, reject) => {
      const end = this.#limit(reject, false, (link: Link | Error) => (link instanceof Error ? reject(link) : resolve(link)));
      opening.then(end, (error: Error) => end(new RedisError(error.message, false, error)));
    });
  }

  /** Returns `done`, for one call within the timeout. Otherwise `late` is called. One timer is for all. */
  #limit<T>(late: (error: Error) => void, sent: boolean, done: (value: T) => void): (value: T) => void {
    const { timeout } = this.#settings;
    const trip = { due: performance.now() + timeout, late, sent };
    this.#trips.add(trip);
    if (this.#timer === undefined) this.#arm(timeout, true);
    return (value) => {
      if (this.#trips.delete(trip)) done(value);
    };
  }

  /**
   * Sets the timer. With `extend`, a timer that is late, since this process did not run, is set once
   * more, for as long as it was late.
   */
  #arm(ms: number, extend: boolean): void {
    const due = performance.now() + ms;
    this.#timer = setTimeout(() => {
      const late = performance.now() - due;
      if (extend && late >= stall) this.#arm(Math.min(late, this.#settings.timeout), false);
      else setImmediate(() => this.#expire()); // what has arrived is processed before
    }, ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const trip of this.#trips) {
      if (trip.due > now) return this.#arm(trip.due - now, true);
      this.#trips.delete(trip);
      trip.late(new RedisError(`Redis has not answered in ${this.#settings.timeout} ms`, trip.sent));
    }
  }
}

/** Removes items from the front until one does not fit. */
function shiftWhile<T>(items: T[], fits: (item: T) => boolean): void {
  const end = items.findIndex((item) => !fits(item));
  items.splice(0, end < 0 ? items.length : end);
}

/** Returns the weight of a command that is not a read. */
const weigh = (command: Command) => 1 + Math.floor(command.reduce((sum, part) => sum + part.length, 0) / unit);

/** Adds to a map that forgets all when it is full. */
export function note<V>(map: Map<string, V>, key: string, value: V, most: number): void {
  if (map.size >= most) map.clear();
  map.set(key, value);
}

const close = (opening: Promise<Link>) =>
  void opening.then(
    (link) => link.close(),
    () => undefined,
  );
