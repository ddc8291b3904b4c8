import { leaseKey } from "./names.js";
import type { Command } from "./scripts.js";

/** ms by which a clock may step before Redis is asked again for the time, and for which its answer counts. */
export const clockStep = 1000;
export const clockLife = 30_000;
/** ms after which a worker that has written nothing counts as one that does not write to the server. */
export const longestSilence = 3000;

// ms between two questions on one connection: while workers write there, before any was seen, after a
// refusal, which Redis logs, and to a server that may have become a replica
const pauses = { usual: 250, unseen: 1000, refused: 60_000, probe: 30_000 };

/**
 * What an answer says about the server: a worker writes there, no worker runs or the server was
 * replaced, it takes no writes, or nothing.
 */
export type Presence = "young" | "old" | "replica" | "unknown";

/** A question to send along, and what to do with the answers to its commands. */
export interface Question {
  readonly commands: Command[];
  answer(replies: unknown[]): Presence;
}

/** The time of Redis, and where workers write. Each pipeline asks until one has an answer, and later when that is due. */
export class Alive {
  /** The longest lease that the maps of the workers allow, in ms. */
  lease = Infinity;
  /** When a worker has last written, by the latest answer; 0: never; undefined: unknown. */
  latest: number | undefined;
  readonly #source: string | undefined;
  readonly #cluster: boolean;
  #drift = Date.now() - performance.now(); // of the machine's clock
  #offset = this.#drift; // of the time of Redis to performance.now: until an answer, that of this machine
  #connection = 0;
  #next = 0; // when to ask again
  #nextFields = 0; // not before
  #nextProbe = 0;
  #seen = false; // a worker has written, here or elsewhere

  constructor(source: string | undefined, cluster: boolean) {
    this.#source = source;
    this.#cluster = cluster;
  }

  /** Returns the time of Redis in milliseconds. */
  now(): number {
    return performance.now() + this.#offset;
  }

  /** Makes the next pipeline ask: it goes through a new connection. */
  renew(): void {
    this.#connection++;
    this.#next = this.#nextProbe = 0;
  }

  /** Returns a question to send along, if one is due, or `always`. `key` is one that the pipeline reads, if any. */
  question(key: string | undefined, always: boolean): Question | undefined {
    const now = performance.now();
    if (!always && now < this.#next && Math.abs(Date.now() - now - this.#drift) < clockStep) return undefined;
    const connection = this.#connection;
    const commands: Command[] = [["time"]];
    if (!this.#cluster && now >= this.#nextFields) {
      commands.push(this.#source === undefined ? ["hgetall", "unstale:alive"] : ["hget", "unstale:alive", this.#source]);
      const probe = key !== undefined && now >= this.#nextProbe ? leaseKey(`${key}:unstale:probe`) : undefined;
      if (probe !== undefined) commands.push(["unlink", probe]); // which a replica refuses
    }
    return {
      commands,
      answer: ([time, fields, probe]) => {
        if (Array.isArray(time)) {
          this.#offset = Number(time[0]) * 1000 + Number(time[1]) / 1000 - (now + performance.now()) / 2;
          this.#drift = Date.now() - performance.now();
        }
        const presence = this.#evaluate(fields, probe);
        if (connection !== this.#connection) return presence;
        const pause = this.#cluster ? clockLife : presence === "old" ? 0 : this.#seen ? pauses.usual : pauses.unseen;
        this.#next = now + pause;
        if (commands.length > 2) this.#nextProbe = now + pauses.probe;
        if (presence === "old") this.#nextProbe = Math.min(this.#nextProbe, now + pauses.unseen);
        return presence;
      },
    };
  }

  #evaluate(fields: unknown, probe: unknown): Presence {
    if (probe instanceof Error && probe.message.startsWith("READONLY")) return "replica";
    if (fields instanceof Error && fields.message.startsWith("NOPERM")) this.#nextFields = performance.now() + pauses.refused;
    this.latest = undefined;
    if (fields === undefined || fields instanceof Error) return "unknown";
    const found = valuesOf(fields).map(parse).filter(({ t }) => t > 0);
    this.latest = Math.max(0, ...found.map(({ t }) => t));
    if (found.length) this.lease = Math.min(...found.map(({ lease }) => (lease > 0 ? lease : Infinity)));
    const young = found.some(({ t }) => this.now() - t / 1000 <= longestSilence);
    this.#seen ||= young;
    if (young) return "young";
    return this.#seen || found.length ? "old" : "unknown"; // older workers, or none yet
  }
}

/** Returns the value of a field, or those of a hash: names and values in turn, or an object of ioredis. */
function valuesOf(fields: object | null): unknown[] {
  if (fields === null) return [];
  if (fields instanceof Buffer) return [fields];
  return Array.isArray(fields) ? fields.filter((_, i) => i % 2 === 1) : Object.values(fields);
}

function parse(text: unknown): { t: number; lease: number } {
  try {
    const { t, lease } = JSON.parse(String(text)) as { t?: unknown; lease?: unknown };
    return { t: Number(t), lease: Number(lease) };
  } catch {
    return { t: 0, lease: 0 };
  }
}
