import { createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";

/** How integers beyond 2^53 - 1 are read: see `CacheOptions.integers`. */
export type Integers = "number" | "bigint";

/** An entry that can be read. Times are milliseconds by the clock of Redis, 0 if it has none. */
export interface Entry {
  readonly e: number;
  readonly s: number;
  readonly o: number;
  /** The loader found nothing, and the value is undefined. */
  readonly negative: boolean;
  /** Each tag with its version before the load. */
  readonly tags: Readonly<Record<string, string>>;
  readonly value: unknown;
}

/** What a key has: an entry, one of another format or codec that stays, or nothing that can be read. */
export type Parsed = Entry | "foreign" | undefined;

/** The versions of tags that Redis was asked for, "" for none. */
export type Versions = ReadonlyMap<string, string>;

export const longestUnpacked = 64 << 20;

const noTags = {};

/** Parses the bytes of an entry of format 1 or 2. */
export function parseEntry(bytes: Buffer, integers: Integers): Parsed {
  try {
    return parse(bytes, integers);
  } catch {
    return undefined;
  }
}

function parse(bytes: Buffer, integers: Integers): Parsed {
  const text = bytes.toString();
  const long = hasLongInteger(text);
  let fields: Record<string, unknown>;
  try {
    fields = (long ? parseExact(text, integers) : JSON.parse(text)) as typeof fields;
  } catch {
    // The first line names the format. After an unknown one, anything may follow.
    fields = JSON.parse(bytes.subarray(0, bytes.indexOf(10) >>> 0).toString()) as typeof fields;
    if ((fields.f ?? 1) === 1) return undefined;
  }
  const { f, c, v, t } = fields;
  if ((f ?? 1) !== 1 && f !== 2) return "foreign";
  if (c && c !== "gzip") return typeof c === "string" ? "foreign" : undefined;
  const e = integer(fields.e), s = integer(fields.s), o = integer(fields.o), n = integer(fields.n);
  if (e === 0 || Number.isNaN(e + s + o + n + integer(fields.b) + integer(fields.d) + integer(fields.i))) return undefined;
  if (t && !Object.values(t).every((version) => typeof version === "string")) return undefined;
  let value = v;
  if (f === 2 || c) {
    const newline = f === 2 ? bytes.indexOf(10) : -1;
    const packed = newline >= 0 ? bytes.subarray(newline + 1) : unquoted(v);
    value = parseValue((c ? gunzipSync(packed, { maxOutputLength: longestUnpacked }) : packed).toString(), integers);
  }
  if (value === undefined || (long && integers === "number" && hasBigInt(value))) return undefined;
  return { e, s, o, negative: n !== 0, tags: (t as Entry["tags"] | null) ?? noTags, value: n === 0 ? value : undefined };
}

/** Returns a field as a number: 0 if it is absent, NaN if it is no integer. */
function integer(field: unknown): number {
  if (field === undefined || field === null) return 0;
  return typeof field === "bigint" || Number.isInteger(field) ? Number(field) : NaN;
}

function unquoted(text: unknown): Buffer {
  if (typeof text !== "string" || text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw new Error("not base64");
  return Buffer.from(text, "base64");
}

/** Parses JSON. With "number", it throws for an integer that a number would round. */
export function parseValue(text: string, integers: Integers): unknown {
  if (!hasLongInteger(text)) return JSON.parse(text);
  const value = parseExact(text, integers);
  if (integers === "number" && hasBigInt(value)) throw new RangeError('it has an integer beyond 2^53, which a number would round; set the option integers of the Cache to "bigint"');
  return value;
}

/** Parses JSON to bigint for integers beyond 2^53 - 1; with "number" only for those that a number would round. */
function parseExact(text: string, integers: Integers): unknown {
  const exact = (_: string, value: unknown, { source = "" }: { source?: string }) => {
    if (typeof value !== "number" || Number.isSafeInteger(value) || !/^-?[0-9]+$/.test(source)) return value;
    return integers === "bigint" || String(value) !== source ? BigInt(source) : value;
  };
  return (JSON.parse as (text: string, reviver: typeof exact) => unknown)(text, exact);
}

function hasBigInt(value: unknown): boolean {
  return typeof value === "bigint" || (typeof value === "object" && value !== null && Object.values(value).some(hasBigInt));
}

/** Reports whether a text may have an integer beyond 2^53: 16 digits from 9 on, or more. Such a run has one at a multiple of 16. */
function hasLongInteger(text: string): boolean {
  for (let i = 15; i < text.length; i += 16) {
    const code = text.charCodeAt(i);
    if (code > 57 || code < 48) continue;
    let from = i;
    let to = i + 1;
    while (isDigit(text, from - 1)) from--;
    while (isDigit(text, to)) to++;
    if (to - from > 16 || (to - from === 16 && text[from] === "9")) return true;
  }
  return false;
}

function isDigit(text: string, i: number): boolean {
  const code = text.charCodeAt(i);
  return code >= 48 && code <= 57;
}

const asInteger = (_: string, v: unknown) => (typeof v === "bigint" ? (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(String(v)) : v);

/** Returns the JSON of a value. It throws for a value that has none, and for a bigint unless `integers` is "bigint". */
export function formatValue(value: unknown, integers: Integers): string {
  try {
    const text = JSON.stringify(value, integers === "bigint" ? asInteger : undefined) as string | undefined;
    if (text !== undefined) return text;
  } catch (error) {
    if (error instanceof TypeError && error.message.includes("BigInt")) throw new TypeError('it has a bigint; set the option integers of the Cache to "bigint"', { cause: error });
    throw error;
  }
  throw new TypeError(`a ${typeof value} has no JSON`);
}

/** Returns the text of an entry of format 1: fields that are 0 are left out, and `v` comes last. */
export function formatEntry(head: { e: number; b: string; s: number; o: number; d: number; n: number }, tags: Versions, value: string): string {
  let text = `{"e":${head.e},"b":${head.b}`;
  for (const name of ["s", "o", "d", "n"] as const) if (head[name]) text += `,"${name}":${head[name]}`;
  if (tags.size) text += `,"t":${JSON.stringify(Object.fromEntries(tags))}`;
  return `${text},"v":${value}}`;
}

/** Identifies the bytes of a value to a script. */
export const hashOf = (bytes: Buffer) => createHash("sha1").update(bytes).digest("hex");

/**
 * What a reader can use an entry for: nothing (load), nothing and leave it alone, only if the load
 * fails, until a new value is loaded, or as it is.
 */
export enum State { absent, foreign, onError, stale, fresh }

/** Returns the state of an entry for a reader that would store it with `tags`, or the tags whose versions are needed first. */
export function judge(entry: Parsed, tags: readonly string[], versions: Versions, now: number): State | string[] {
  if (entry === undefined || entry === "foreign") return entry === undefined ? State.absent : State.foreign;
  let state = State.absent;
  if (now < entry.e) state = State.fresh;
  else if (!entry.negative && now < Math.max(entry.s, entry.o)) state = now < entry.s ? State.stale : State.onError;
  if (tags.length === 0 && entry.tags === noTags) return state;
  if (state === State.absent || !tags.every((tag) => Object.hasOwn(entry.tags, tag))) return State.absent;
  const unknown: string[] = [];
  for (const tag of Object.keys(entry.tags)) {
    const version = versions.get(tag);
    if (version === undefined) unknown.push(tag);
    else if (version === "" || version !== entry.tags[tag]) return State.absent;
  }
  return unknown.length ? unknown : state;
}
