import { kind } from "./params.js";

/**
 * A connection or a pool on the primary, in the shape of mysql2/promise: `query` resolves to the
 * rows, or to a list whose first element is the rows.
 */
export interface Queryable {
  query(sql: string, values?: unknown[]): Promise<unknown>;
}

/** IDs that one statement received: `first`, `first + step` and so on. */
export interface Run {
  readonly first: bigint;
  readonly count: number;
  readonly step: number;
}

/**
 * A write token names the rows of a write. Its text goes into a cookie or a header: see
 * `formatToken` and `parseToken`. It is not signed: a forged token only makes its user's reads slower.
 */
export interface Token {
  /** The ID of the outbox. "" in a token without rows. */
  readonly source: string;
  /** When the rows were committed, in seconds since 1970 by the database's clock. */
  readonly made: number;
  /** In ascending order. */
  readonly runs: readonly Run[];
  /** The write had more rows than a token can name; `runs` is empty. It is never settled. */
  readonly many: boolean;
}

/** For how long after the commit a token counts, in seconds by the database's clock. */
export const tokenLifetime = 300;

export const mostRows = 1000;
const mostRuns = 40;
export const longestText = 1024;
const mostStep = 65_535;
const mostID = 2n ** 63n - 1n;

/** Returns the token of rows that one transaction has inserted. Runs may come in any order. */
export function makeToken(source: string, made: number, runs: readonly Run[], many = false): Token {
  const joined: Run[] = [];
  for (const next of runs.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : a.step - b.step))) {
    const last = joined.at(-1);
    const step = BigInt(next.step);
    if (last?.step !== next.step || (next.first - last.first) % step !== 0n || next.first > lastOf(last) + step) joined.push(next);
    else if (lastOf(next) > lastOf(last)) joined[joined.length - 1] = { ...last, count: Number((lastOf(next) - last.first) / step) + 1 };
  }
  many ||= joined.length > mostRuns || joined.reduce((sum, run) => sum + run.count, 0) > mostRows;
  return { source, made, runs: many ? [] : joined, many };
}

const lastOf = (run: Run) => run.first + BigInt(run.count - 1) * BigInt(run.step);

/**
 * Returns a token with the rows of both, for example of the browser's token and the current request.
 * A token that is older by `tokenLifetime` is dropped. Throws if they come from different outboxes.
 */
export function joinTokens(a: Token, b: Token): Token {
  if (a.source === "" || b.source === "") return a.source === "" ? b : a;
  if (a.source !== b.source) throw new Error("the token belongs to another outbox");
  const [older, newer] = a.made > b.made ? [b, a] : [a, b];
  if (newer.made - older.made > tokenLifetime) return newer;
  return makeToken(newer.source, newer.made, [...older.runs, ...newer.runs], older.many || newer.many);
}

/** Returns the text of a token: letters, digits and - . _ ~, at most 1,024 bytes; "" without rows. */
export function formatToken({ source, made, runs, many }: Token): string {
  if (source === "") return "";
  const texts = runs.map(({ first, count, step }) => {
    const numbers = count === 1 ? [first] : step === 1 ? [first, count] : [first, count, step];
    return numbers.map((n) => n.toString(36)).join("-");
  });
  return `1.${source}.${made.toString(36)}.${many ? "~" : texts.join("_")}`;
}

/** Parses the text of a token, which may come from anyone. "" has no rows. If it throws, ignore the text. */
export function parseToken(text: string): Token {
  if (text === "") return { source: "", made: 0, runs: [], many: false };
  if (typeof text !== "string") throw new Error(`parse token: ${kind(text)} is not text`);
  const [version, source = "", time = "", rows = "", ...more] = text.split(".");
  const refuse = (why: string) => new Error(`parse token: ${why}`);
  if (text.length > longestText) throw refuse(`it has more than ${longestText} bytes`);
  if (version !== "1" || more.length || !/^[0-9a-f]{32}$/.test(source)) throw refuse("it does not have the form 1.SOURCE.MADE.RUNS");
  const made = base36(time);
  if (made < 0n || made > 2_147_483_647_000n) throw refuse("the time is not in seconds since 1970 in base 36");
  const many = rows === "~";
  const runs = (many ? [] : rows.split("_")).map((run): Run => {
    const [first = 0n, count = 1n, step = 1n, ...others] = run.split("-").map(base36);
    if (others.length || first < 1n || count < 1n || step < 1n) throw refuse("the rows are not numbers from 1 on in base 36");
    if (first > mostID || count > mostRows || step > mostStep) throw refuse("a number is too large");
    return { first, count: Number(count), step: Number(step) };
  });
  const token = makeToken(source, Number(made), runs, many);
  if ((token.many && !many) || runs.length > mostRuns) throw refuse(`it names more than ${mostRows} rows, or rows in more than ${mostRuns} runs`);
  return token;
}

/** Parses a number in base 36, in its shortest form. -1n: it is none. */
function base36(text: string): bigint {
  if (!/^(0|[1-9a-z][0-9a-z]{0,12})$/.test(text)) return -1n;
  return [...text].reduce((n, digit) => n * 36n + BigInt(parseInt(digit, 36)), 0n);
}

/** Returns the statement that `settled` sends to the primary. IDs are numbers, and part of the text. */
export function settledQuery({ runs }: Token): string {
  const ids = (column: string) => {
    const parts = runs.map(({ first, count, step }) => {
      if (step === 1 || count === 1) return `${column} BETWEEN ${first} AND ${first + BigInt(count - 1)}`;
      return `${column} IN (${Array.from({ length: count }, (_, i) => first + BigInt(i * step)).join(",")})`;
    });
    return parts.join(" OR ") || `${column} IN (0)`; // no row has it: the token of too many rows asks only for its outbox
  };
  const spans = runs.map((run) => `first_high >= ${run.first} AND first_low <= ${lastOf(run)}`).join(" OR ") || "FALSE";
  return `SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@SESSION.autocommit,
  /*!80000 @@SESSION.transaction_isolation */ /*M!100100 @@SESSION.tx_isolation */,
  UNIX_TIMESTAMP(), COALESCE((SELECT MIN(id) FROM cache_outbox_source), ''), (SELECT COUNT(*) FROM cache_outbox_source),
  EXISTS (SELECT 1 FROM cache_outbox FORCE INDEX (PRIMARY) WHERE ${ids("id")}),
  EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (first_id) WHERE (${ids("first_id")}) AND repeated = 0),
  EXISTS (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (first_high)
    WHERE first_high >= ${runs[0]?.first ?? 0} AND swept_at IS NULL AND first_low > 0 AND (${spans})),
  COALESCE((SELECT reason FROM cache_outbox_dead FORCE INDEX (first_id) WHERE (${ids("first_id")}) AND repeated = 0 LIMIT 1), '')`;
}

/** Returns the rows of `[rows, fields]` or of rows. */
export function rowsOf(answer: unknown): unknown[] {
  const [rows] = answer as unknown[];
  return Array.isArray(rows) ? rows : (answer as unknown[]);
}

/** Returns the columns of the first row, as text, also with nestTables. */
export function firstRow(answer: unknown): string[] {
  const [row] = rowsOf(answer);
  const isTable = (value: unknown): value is Record<string, unknown> => Object.prototype.toString.call(value) === "[object Object]";
  return Object.values(row ?? {}).flatMap((value: unknown) => (isTable(value) ? Object.values(value) : [value])).map(String);
}

/** What is known about the rows of a token. */
export interface Verdict {
  /** The worker has settled all rows: their keys are gone from Redis. */
  readonly settled: boolean;
  /** For how many seconds the token counts still, by the database's clock. */
  readonly left: number;
  /** Why the rows will not be settled, such as a dead letter. */
  readonly error?: string;
}

/**
 * Asks the primary, with one statement, whether the worker has settled the rows of a token. Throws
 * if that is unknown: the database fails, is read-only, or the session reads old snapshots.
 */
export async function settled(connection: Queryable, token: Token): Promise<Verdict> {
  if (token.source === "") return { settled: true, left: 0 };
  const row = firstRow(await connection.query(settledQuery(token)));
  const [readOnly, innodb, autocommit, isolation, now, source, outboxes, waiting, delayed, sweeps, dead] = row;
  const unknown = (why: string) => new Error(`ask for invalidations: ${why}`);
  if (!/^([0-9]+ ){5}[0-9]+$/.test([autocommit, now, outboxes, waiting, delayed, sweeps].join(" "))) throw unknown(`the connection returned ${row.join(", ")}; use it without typeCast`);
  const isOn = (variable = "") => variable !== "0" && variable.toUpperCase() !== "OFF"; // newer servers have more values
  if (isOn(readOnly) || isOn(innodb)) throw unknown("the server is read-only: it may be a replica, which is behind");
  if (Number(outboxes) > 1) throw unknown(`the database has ${outboxes} outboxes`);
  if (autocommit !== "1") throw unknown("the session has autocommit off, so it reads an old snapshot; leave it on");
  if (isolation?.startsWith("READ-UNCOMMITTED")) throw unknown("the session reads what is not committed; use READ COMMITTED or REPEATABLE READ");
  const left = Math.max(Math.min(tokenLifetime, tokenLifetime + token.made - Number(now)), 0);
  let error = "";
  if (source !== token.source) error = "the token belongs to another outbox";
  else if (token.many) error = `the token has more than ${mostRows} rows, or too many ranges of IDs; whether they are settled is unknown`;
  else if (dead) error = `a row of the token is a dead letter: ${dead}`;
  return error ? { settled: false, left, error } : { settled: waiting === "0" && delayed === "0" && sweeps === "0", left };
}
