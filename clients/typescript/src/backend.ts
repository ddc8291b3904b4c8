import { Alive, type Question } from "./alive.js";
import { parseEntry, type Integers, type Parsed, type Versions } from "./entry.js";
import { stampKey } from "./names.js";
import type { Settings } from "./options.js";
import { isReply, type Link } from "./redis.js";
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
  reply instanceof Error && (!isReply(reply) || /^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|NOAUTH|WRONGPASS|NOREPLICAS) /.test(reply.message));

const isError = (reply: unknown) => reply instanceof Error;
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

/** What is sent together: the reads and the commands of one tick, or its requests for leases. */
class Batch {
  readonly slots = new Map<string, Slot>();
  readonly tags = new Set<string>();
  readonly commands: Command[] = [];
  readonly ends: Done[] = [];
  constructor(readonly leases: boolean) {}
}

const mostKeys = 500; // of one MGET
const stall = 5; // ms by which a timer is late if this process did not run
const searchLife = 1000; // ms
const noVersions = new Map<string, string>();

/**
 * Sends commands to Redis on its own connections: those of one tick in one pipeline, each within the
 * timeout, and none while Redis is known to be away.
 */
export class Backend {
  readonly alive: Alive;
  /** Answers that were not used, since workers have left the server. */
  strays = 0;
  readonly #settings: Settings;
  readonly #cluster: boolean;
  #link: Promise<Link> | undefined;
  #ready: Link | undefined; // that of #link
  readonly #batches: (Batch | undefined)[] = []; // of this tick: the one of reads, the one of leases
  readonly #trips = new Set<{ readonly due: number; readonly late: (error: Error) => void; readonly sent: boolean }>(); // the oldest first
  #timer: NodeJS.Timeout | undefined;
  #failed = 0; // in a row
  #until = 0; // when to try again, after too many
  #error: Error | undefined; // the latest fault
  #search: { begun: number; moved: Promise<boolean> } | undefined;
  #closed = false;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#cluster = settings.redis.cluster;
    this.alive = new Alive(settings.source, this.#cluster);
  }

  /** Reads a key and tag versions together with the other reads of this tick. */
  read(waiter: Waiter): void {
    const { slots, tags } = this.#next(false);
    let slot = slots.get(waiter.key);
    if (slot === undefined) slots.set(waiter.key, (slot = new Slot()));
    slot.waiters.push(waiter);
    for (const tag of waiter.tags) tags.add(tag);
  }

  /**
   * Sends commands together with the others of this tick. Each reply is what Redis answers, or an Error.
   * Behind requests for `leases`, the same pipeline asks where workers write, and how long leases may be.
   */
  run(commands: readonly Command[], leases = false): Promise<unknown[]> {
    const batch = this.#next(leases);
    batch.commands.push(...commands);
    return new Promise((end) => batch.ends.push((replies) => end(replies.splice(0, commands.length))));
  }

  /** Returns the versions of tags, or why they are unknown. */
  async versions(tags: readonly string[]): Promise<Versions | Error> {
    const replies = await this.run(tags.map((tag) => ["get", stampKey(tag)]));
    return replies.find(isFault) ?? new Map(tags.map((tag, i) => [tag, versionOf(replies[i])]));
  }

  /** Why nothing is sent, or undefined. */
  get error(): Error | undefined {
    return this.#away ? this.#error : undefined;
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  get #away(): boolean {
    return this.#failed >= this.#settings.failures;
  }

  #next(leases: boolean): Batch {
    const at = Number(leases);
    const open = this.#batches[at];
    if (open !== undefined && !this.#cluster) return open;
    const batch = (this.#batches[at] = new Batch(leases));
    // after all callers of this tick, also those that an answer has woken
    process.nextTick(() => {
      if (this.#batches[at] === batch) this.#batches[at] = undefined;
      this.#send(batch);
    });
    return batch;
  }

  #send(batch: Batch): void {
    const names = [...batch.slots.keys()];
    for (const tag of batch.tags) names.push(stampKey(tag));
    const reads: Command[] = [];
    const step = this.#cluster ? 1 : mostKeys;
    for (let i = 0; i < names.length; i += step) reads.push(names.length === 1 || step === 1 ? ["get", names[i]!] : ["mget", ...names.slice(i, i + step)]);
    this.#exchange(batch.commands.length ? [...reads, ...batch.commands] : reads, names[0], batch.leases, (replies) => {
      const values: unknown[] = [];
      let refused = false; // perhaps for one of several keys, which the user may not read
      for (let i = 0; i < reads.length; i++) {
        const reply = replies[i];
        if (Array.isArray(reply)) values.push(...(reply as unknown[]));
        else for (let n = reads[i]!.length; n > 1; n--) values.push(reply);
        refused ||= reply instanceof Error && reply.message.startsWith("NOPERM") && reads[i]!.length > 2;
      }
      const others = batch.ends.length ? replies.slice(reads.length) : replies;
      if (!refused) return this.#answer(batch, values, others);
      const each = names.map((name) => ["get", name]);
      this.#exchange(each, undefined, false, (again) => this.#answer(batch, again, others));
    });
  }

  #answer({ slots, tags, ends }: Batch, values: unknown[], replies: unknown[]): void {
    let i = 0;
    for (const slot of slots.values()) slot.reply = values[i++] as Slot["reply"];
    let fault: Error | undefined;
    const versions = tags.size ? new Map<string, string>() : noVersions;
    for (const tag of tags) {
      const value = values[i++];
      if (isFault(value)) fault = value;
      versions.set(tag, versionOf(value));
    }
    for (const slot of slots.values()) {
      for (const waiter of slot.waiters) waiter.answered(fault && waiter.tags.length ? new Slot(fault) : slot, versions);
    }
    for (const end of ends) end(replies);
  }

  /** Sends commands. If no answer may be used, all have the same error. `key` is one that they read, if any. */
  #exchange(commands: readonly Command[], key: string | undefined, leases: boolean, done: Done): void {
    const away = this.#away;
    if (this.#closed || (away && performance.now() < this.#until)) return done(commands.map(() => new RedisError("Redis is away", false, this.#error)));
    if (away) this.#until = performance.now() + this.#settings.pause; // this one tries
    const ended = this.#settings.hooks?.redis?.(commands.length);
    const end: Done = (replies) => this.#end(replies, ended, done);
    if (this.#ready) return this.#sendTo(this.#ready, commands, key, leases, end);
    this.#connected().then(
      (link) => this.#sendTo(link, commands, key, leases, end),
      (error) => end(commands.map(() => error as unknown)),
    );
  }

  /** Sends a pipeline, with the question where workers write if that is due. */
  #sendTo(link: Link, commands: readonly Command[], key: string | undefined, leases: boolean, end: Done): void {
    const question = this.alive.question(key, leases);
    let all = commands;
    // in front of reads, since a master may become a replica between the two
    if (question) all = leases ? [...commands, ...question.commands] : [...question.commands, ...commands];
    this.#trip(link, all, (replies) => {
      if (question === undefined && !replies.some(isError)) return end(replies);
      const answers = replies.splice(leases ? commands.length : 0, all.length - commands.length);
      this.#check(link, commands, key, replies, question, answers).then(end, (error) => end(commands.map(() => error as unknown)));
    });
  }

  #end(replies: unknown[], ended: ((error?: Error) => void) | void, done: Done): void {
    const fault = replies.some(isError) ? replies.find(isFault) : undefined;
    if (fault === undefined) this.#worked();
    else if (!(fault instanceof LeftError)) this.#failure(fault);
    ended?.(fault);
    done(replies);
  }

  /** Throws if an answer proves that the server must not be used. Sends scripts in full that it does not have. */
  async #check(link: Link, commands: readonly Command[], key: string | undefined, replies: unknown[], question: Question | undefined, answers: unknown[]): Promise<unknown[]> {
    const lost = answers.find(mayRun);
    if (lost !== undefined) throw lost;
    const presence = question?.answer(answers);
    if (presence === "replica") throw new RedisError("READONLY the server is a replica, which is behind", true);
    if (presence === "old" && (await this.#moved(key))) {
      this.strays++;
      throw new LeftError("workers have left the server that answered", true);
    }
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
    const opening = this.#settings.redis.open(10 * this.#settings.timeout, () => {
      if (this.#link === opening) this.#link = this.#ready = undefined;
    });
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

  #failure(error: Error): void {
    this.#error = error;
    if (++this.#failed === this.#settings.failures) {
      this.#until = performance.now() + this.#settings.pause;
      this.#settings.logger.warn("Redis is away: every call loads", error);
    }
    if (this.#away || error.message.startsWith("READONLY")) this.#drop(); // a new connection may lead elsewhere
  }

  #sent(link: Link, commands: readonly Command[]): Promise<unknown[]> {
    return new Promise((resolve) => this.#trip(link, commands, resolve));
  }

  #trip(link: Link, commands: readonly Command[], done: Done): void {
    const end = this.#limit((error) => done(commands.map(() => error)), true, done);
    link.send(commands, end);
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
    if (this.#timer === undefined) this.#arm(timeout);
    return (value) => {
      if (this.#trips.delete(trip)) done(value);
    };
  }

  #arm(ms: number): void {
    const due = performance.now() + ms;
    this.#timer = setTimeout(() => {
      const late = performance.now() - due;
      if (late >= stall) this.#arm(Math.min(late, this.#settings.timeout)); // this process did not run
      else setImmediate(() => this.#expire()); // what has arrived is processed before
    }, ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const trip of this.#trips) {
      if (trip.due > now) return this.#arm(trip.due - now);
      this.#trips.delete(trip);
      trip.late(new RedisError(`Redis has not answered in ${this.#settings.timeout} ms`, trip.sent));
    }
  }
}

const close = (opening: Promise<Link>) =>
  void opening.then(
    (link) => link.close(),
    () => undefined,
  );
