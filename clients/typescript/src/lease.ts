import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { isError, isFault, mayRun, versionOf, type Backend } from "./backend.js";
import { holdKey, leaseKey, stampKey } from "./names.js";
import type { Settings } from "./options.js";
import * as scripts from "./scripts.js";

/** How many others a reader waits for. If one more has the lease, it loads and stores nothing. */
export const mostHolders = 4;
// ms: between two requests for a taken lease, how much longer a tag version lives than the longest entry
// that has it, and between two looks for a lost lease while Redis is away
export const firstPause = 2;
export const longestPause = 100;
export const versionMargin = 3_600_000;
const longestSearch = 1000;
const mostLost = 16_384;

/** What a load asks for the lease of its key with, and what it was granted. */
export interface Claim {
  readonly key: string;
  readonly tags: readonly string[];
  /** The longest life of an entry. */
  readonly longest: number;
  /** It waits while others load. */
  readonly patient: boolean;
  /** Of the entry that the load replaces, "" for none. */
  hash: string;
  /** The value of the lease. */
  lease?: string;
  /** Why Redis has refused a version, by the latest answer. */
  error?: Error | undefined;
  /** From before the load; "" for a tag that may not be stored. */
  versions: ReadonlyMap<string, string>;
}

/** Takes leases, stores values under them, and gives them back, by docs/protocol.md. */
export class Leases {
  /** Leases that were shorter than configured. */
  shortened = 0;
  readonly #backend: Backend;
  readonly #settings: Settings;
  readonly #life: AbortSignal;
  readonly #lost: { name: string; token: string; looked: boolean }[] = [];
  #searching = false;

  /** `life` ends waits for leases, and the search for lost ones, which end by themselves. */
  constructor(backend: Backend, settings: Settings, life: AbortSignal) {
    this.#backend = backend;
    this.#settings = settings;
    this.#life = life;
  }

  /** How long a lease lasts. */
  get ttl(): number {
    return Math.min(this.#settings.lease, this.#backend.alive.lease);
  }

  /**
   * Asks for the lease of a key until it is granted, which sets `claim.lease`, or nothing may be stored.
   * `usable` gets a value that another reader has stored meanwhile: it sets `claim.hash` and returns
   * undefined to ask again. What else it returns is the result. Throws an error of Redis.
   */
  async take<T>(claim: Claim, usable: (bytes: Buffer) => Promise<T | undefined>): Promise<T | undefined> {
    const end = performance.now() + this.ttl;
    const load = { token: randomUUID() }; // a token serves one load
    let left = 0;
    let holders = 0;
    for (let pause = firstPause; ; pause = Math.min(2 * pause, longestPause)) {
      const [kind, rest] = await this.#ask(claim, load);
      if (kind === "lease") claim.lease = String(rest);
      const value = kind === "value" ? await usable(rest as Buffer) : undefined;
      if (value !== undefined || (kind !== "value" && (kind !== "taken" || !claim.patient))) return value;
      if (kind === "taken") {
        if (Number(rest) > left) holders++; // nothing extends a lease: this is another one
        left = Number(rest);
      }
      if (holders > mostHolders || performance.now() > end || this.#life.aborted) return undefined;
      if (kind === "taken") await this.#pause(Math.min(pause * (0.5 + Math.random()), Math.max(left, 1)));
    }
  }

  /** Sends one request for a lease, and for tag versions. Returns the answer, empty if nothing can be stored. */
  async #ask(claim: Claim, load: { token: string }): Promise<readonly unknown[]> {
    const name = leaseKey(claim.key)!;
    const { ttl } = this;
    const request = scripts.lease([name, holdKey(claim.key)!, claim.key], load.token, String(ttl), claim.hash);
    const [answer, ...versions] = await this.#backend.run([request, ...stamps(claim.tags, claim.longest)], true);
    const lost = [answer, ...versions].find(mayRun);
    if (lost !== undefined) {
      if (!(answer instanceof Error) || mayRun(answer)) this.#lose(name, load.token);
      throw lost;
    }
    this.#backend.note("lease", [answer]);
    if (answer instanceof Error) throw answer;
    this.#backend.note("tag version", versions);
    claim.error = versions.find(isError);
    claim.versions = new Map(claim.tags.map((tag, i) => [tag, versionOf(versions[i])]));
    const [kind, rest] = answer as [Buffer, Buffer | number];
    if (ttl < this.#settings.lease) this.shortened++;
    if (this.ttl >= ttl) return [String(kind), rest];
    // as the same pipeline says, second sweeps do not wait for this lease
    if (String(kind) === "lease") await this.#release(name, String(rest));
    load.token = randomUUID();
    return this.#ask(claim, load);
  }

  /** Asks for the versions of tags that only the loader has named. Throws an error of Redis. */
  async versions(tags: readonly string[], longest: number): Promise<Map<string, string>> {
    const replies = await this.#backend.run(stamps(tags, longest));
    this.#backend.note("tag version", replies);
    const error = replies.find(isError);
    if (error) throw error;
    return new Map(tags.map((tag, i) => [tag, versionOf(replies[i])]));
  }

  /**
   * Stores an entry for `px` ms under the lease. `stored` reports whether Redis has accepted it, `same`
   * whether the versions of its tags were then unchanged. Throws if that is unknown.
   */
  async fill(claim: Claim, entry: string, px: number, tags: ReadonlyMap<string, string>): Promise<{ stored: boolean; same: boolean }> {
    const names = [leaseKey(claim.key)!, holdKey(claim.key)!, claim.key];
    const reads = Array.from(tags.keys(), (tag) => ["get", stampKey(tag)]);
    const [stored, ...versions] = await this.#backend.run([scripts.fill(names, claim.lease!, entry, String(px)), ...reads]);
    this.#backend.note("value", [stored]);
    if (stored === 1) this.#backend.sized(claim.key, entry.length);
    if (stored instanceof Error) throw stored;
    return { stored: stored === 1, same: [...tags.values()].every((version, i) => version === versionOf(versions[i])) };
  }

  /** Gives the lease back. With `removes`, the entry that was read before goes too. */
  async release({ key, lease, hash }: Claim, removes: boolean): Promise<void> {
    if (lease !== undefined) await this.#release(leaseKey(key)!, lease, removes && hash !== "" ? [key, hash] : []);
  }

  async #release(name: string, lease: string, [key, hash]: string[] = []): Promise<void> {
    const [reply] = await this.#backend.run([key !== undefined ? scripts.release([name, key], lease, hash!) : scripts.release([name], lease)]);
    if (isFault(reply)) this.#lose(name, lease.slice(0, lease.lastIndexOf(":")));
  }

  #pause(ms: number, ref = true): Promise<unknown> {
    return sleep(ms, undefined, { ref, signal: this.#life }).catch(() => undefined);
  }

  /** Looks for a lease in the background that Redis may have, or get: a copy of the request may arrive late. */
  #lose(name: string, token: string): void {
    if (this.#lost.length < mostLost) this.#lost.push({ name, token, looked: false });
    if (!this.#searching) void this.#search();
  }

  /** Sends commands that need not stay together. */
  async #each(commands: readonly scripts.Command[]): Promise<unknown[]> {
    return (await Promise.all(commands.map((command) => this.#backend.run([command])))).flat();
  }

  async #search(): Promise<void> {
    this.#searching = true;
    const { timeout } = this.#settings;
    for (let pause = 0; this.#lost.length > 0 && !this.#life.aborted; ) {
      const looked = this.#lost.splice(0);
      const replies = await this.#each(looked.map(({ name }) => ["get", name]));
      const found: scripts.Command[] = [];
      for (const [i, lost] of looked.entries()) {
        const reply = replies[i];
        const unknown = isError(reply);
        const there = reply instanceof Buffer && reply.toString().startsWith(`${lost.token}:`);
        if (there) found.push(scripts.release([lost.name], reply));
        // until Redis has answered twice, the last time without such a lease
        if (there || unknown || !lost.looked) this.#lost.push({ ...lost, looked: lost.looked || !unknown });
      }
      await this.#each(found); // what stays is found again
      const answered = !replies.every(isError);
      pause = answered ? timeout : Math.min(Math.max(2 * pause, timeout), Math.max(longestSearch, timeout));
      await this.#pause(pause, false);
    }
    this.#searching = false;
  }
}

const stamps = (tags: readonly string[], longest: number) =>
  tags.map((tag) => scripts.stamp([stampKey(tag), holdKey(stampKey(tag))!], randomUUID(), String(Math.ceil(longest) + versionMargin)));
