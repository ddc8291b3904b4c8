import { setTimeout as sleep } from "node:timers/promises";
import { encodeAll, type Invalidation, type Row } from "./row.js";
import { formatToken, makeToken, type Queryable, type Token } from "./token.js";

export { FieldError } from "./params.js";
export type { Invalidation, Scalar } from "./row.js";

/**
 * A connection with an open transaction: one of mysql2/promise, or what has a `query` like it. A
 * pool is not one. Each value is text or null, so `execute` works as well as `query`. If the
 * session has the `sql_mode` NO_BACKSLASH_ESCAPES, pass `{ query: (sql, values) =>
 * connection.execute(sql, values) }`.
 */
export type Connection = Queryable & { readonly getConnection?: never };

/** A connection that returns to its pool, or is closed. */
export type Pooled = Connection & { release(): void; destroy(): void };

/** A pool of mysql2/promise, whose connections are C. */
export interface Pool<C extends Pooled> {
  getConnection(): Promise<C>;
}

// A statement inserts at most this many rows and about this many bytes, far below the limits of
// servers.
const mostRows = 500;
const mostBytes = 1 << 20;

// Contract: appends; takes no lock that another insert waits for; not repeatable (each run adds
// rows). The ID is CAST, since a prepared statement keeps the type of its first ID:
// docs/adopting.md#ids-from-drivers
const insertSQL = "INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES ";
const insertDelayedSQL = "INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, due_at) VALUES ";

// Contract: the single row of cache_outbox_source, under a shared lock, which delays no session
// because the row is never written. A plain read would give the transaction its snapshot.
const tokenSQL = "SELECT s.id, UNIX_TIMESTAMP(), @@SESSION.auto_increment_increment FROM cache_outbox_source AS s LOCK IN SHARE MODE";

/**
 * Inserts invalidations in the transaction of the caller, which it neither commits nor rolls back.
 * The worker processes them after the commit.
 *
 * It checks all of them first: if one is invalid, it throws a FieldError and inserts nothing. Other
 * errors are those of the connection: then roll back, since some rows may have been inserted.
 */
export async function enqueue(connection: Connection, invalidations: Invalidation | readonly Invalidation[]): Promise<void> {
  const { now, later } = encode(connection, invalidations);
  await insert(connection, insertSQL, now);
  await insert(connection, insertDelayedSQL, later);
}

/**
 * The rows of one transaction, for a write token. `inTransaction` has its own. With the transaction
 * of an ORM, make one per attempt.
 */
export class Writes {
  #token: Token = { source: "", made: 0, runs: [], many: false };
  #begun = 0;
  #step = 1;
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Is like the function `enqueue`, and collects the rows that are not delayed. The account needs
   * SELECT on cache_outbox_source. If the answers of `query` have no `insertId`, no other statement
   * may run on the connection meanwhile.
   */
  enqueue(connection: Connection, invalidations: Invalidation | readonly Invalidation[]): Promise<void> {
    const done = this.#last.then(() => this.#enqueue(connection, invalidations));
    this.#last = done.catch(() => undefined);
    return done;
  }

  /**
   * Returns the text of the token of all rows, "" without any. Call it after COMMIT: the token
   * counts for five minutes from then on.
   */
  committed(): string {
    const passed = Math.floor((performance.now() - this.#begun) / 1000);
    return formatToken({ ...this.#token, made: this.#token.made + passed });
  }

  async #enqueue(connection: Connection, invalidations: Invalidation | readonly Invalidation[]): Promise<void> {
    const { now, later } = encode(connection, invalidations);
    if (now.length > 0 && this.#token.source === "") await this.#readSource(connection);
    await insert(connection, insertSQL, now, async (answer, count) => {
      const first = insertId(answer) ?? BigInt(firstRow(await connection.query("SELECT CAST(LAST_INSERT_ID() AS CHAR)", []))[0] ?? 0);
      if (first <= 0n) throw new Error("insert invalidations: the driver tells no id of the rows");
      const { source, made, runs, many } = this.#token;
      this.#token = makeToken(source, made, [...runs, { first, count, step: this.#step }], many);
    });
    await insert(connection, insertDelayedSQL, later);
  }

  async #readSource(connection: Connection): Promise<void> {
    this.#begun = performance.now();
    const [source, made, step] = await connection.query(tokenSQL, []).then(firstRow, (cause: unknown) => {
      throw new Error("read the outbox's id (unstale migrate up makes it; the account needs SELECT on cache_outbox_source)", { cause });
    });
    if (!source) throw new Error("cache_outbox_source has no row; run unstale migrate up");
    this.#token = makeToken(source, Number(made), []);
    this.#step = Number(step);
  }
}

/** COMMIT failed, so the transaction may have been committed. */
export class CommitError extends Error {
  override readonly name = "CommitError";
  constructor(
    /** The token of the rows, which may exist. */
    readonly token: string,
    cause: unknown,
  ) {
    super(`commit transaction: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** What `inTransaction` gives to its function. */
export interface Transaction<C> {
  /** The connection of the transaction, for the statements of the change. */
  readonly connection: C;
  /**
   * Is like the function `enqueue`. If it fails, the transaction is rolled back, even if the error
   * is caught.
   */
  enqueue(invalidations: Invalidation | readonly Invalidation[]): Promise<void>;
}

/** The result of a transaction, and the write token of its rows, which is "" without any. */
export interface Committed<T> {
  readonly result: T;
  readonly token: string;
}

const mostTries = 5;
const backoff = 5; // ms

/** Connections of inTransaction: another START TRANSACTION would commit what they have done. */
const busy = new WeakSet<object>();

/**
 * Runs `fn` in a transaction of a connection, or of one from a pool, and commits. Returns the
 * result of `fn`, and the write token of what it enqueued. If `fn` throws, it rolls back.
 *
 * It calls `fn` again, at most five times in total, after a deadlock (1213), a lock wait timeout
 * (1205) or, from MariaDB 11.8, a changed record (1020), also as the `cause` of an error, and if
 * COMMIT fails because another node of a cluster changed a row first. So `fn` must have no effects
 * outside of the transaction. Any other error of COMMIT becomes a CommitError.
 */
export async function inTransaction<C extends Pooled, T>(on: Pool<C>, fn: (tx: Transaction<C>) => Promise<T>): Promise<Committed<T>>;
export async function inTransaction<C extends Connection, T>(on: C, fn: (tx: Transaction<C>) => Promise<T>): Promise<Committed<T>>;
export async function inTransaction<T>(on: Connection | Pool<Pooled>, fn: (tx: Transaction<Pooled>) => Promise<T>): Promise<Committed<T>> {
  for (let tries = 1; ; tries++) {
    const pooled = isPool(on) ? await on.getConnection() : undefined;
    let broken = false;
    try {
      return await attempt(pooled ?? (on as Pooled), fn, () => (broken = true));
    } catch (error) {
      if (tries === mostTries || !isContention(error)) throw error;
    } finally {
      if (broken) pooled?.destroy();
      else pooled?.release();
    }
    await sleep(tries * backoff * (1 + Math.random()));
  }
}

/** Makes one attempt. It calls `broken` if the connection may have a transaction still. */
async function attempt<C extends Connection, T>(connection: C, fn: (tx: Transaction<C>) => Promise<T>, broken: () => void): Promise<Committed<T>> {
  if (busy.has(connection)) throw new Error("begin transaction: inTransaction already runs on this connection; use a pool");
  busy.add(connection);
  const writes = new Writes();
  const enqueued: Promise<void>[] = [];
  let state: "open" | "ended" | "committing" = "open";
  try {
    await connection.query("START TRANSACTION");
    const result = await fn({
      connection,
      async enqueue(invalidations) {
        if (state !== "open") throw new Error("enqueue: the transaction has ended");
        const done = writes.enqueue(connection, invalidations);
        done.catch(() => undefined); // attempt waits for it too
        enqueued.push(done);
        return done;
      },
    });
    state = "ended";
    await Promise.all(enqueued);
    state = "committing";
    await connection.query("COMMIT");
    return { result, token: writes.committed() };
  } catch (error) {
    const committing = state === "committing";
    state = "ended";
    await Promise.allSettled(enqueued);
    await connection.query("ROLLBACK").catch(broken);
    throw committing && !isRollback(error) ? new CommitError(writes.committed(), error) : error;
  } finally {
    busy.delete(connection);
  }
}

/** Reports whether another attempt may succeed after an error. */
function isContention(error: unknown): boolean {
  return !(error instanceof CommitError) && (hasNumber(error, (n) => n === 1205 || n === 1020) || isRollback(error));
}

/**
 * Reports whether an error of COMMIT proves that the transaction is rolled back on all nodes of a
 * cluster.
 */
function isRollback(error: unknown): boolean {
  return hasNumber(error, (n, text) => n === 1213 || n === 3101 || (n === 1180 && text.includes(" 149 ")));
}

function hasNumber(error: unknown, test: (errno: unknown, text: string) => boolean): boolean {
  for (let depth = 0; error instanceof Error && depth < 10; depth++, error = error.cause) {
    if (test((error as { errno?: unknown }).errno, error.message)) return true;
  }
  return false;
}

function isPool(on: Connection | Pool<Pooled>): on is Pool<Pooled> {
  return typeof on.getConnection === "function";
}

function encode(connection: Connection, invalidations: Invalidation | readonly Invalidation[]) {
  if (isPool(connection)) throw new TypeError("enqueue: this is a pool; pass the connection that has the transaction");
  return encodeAll("entity" in invalidations ? [invalidations] : invalidations);
}

/** Inserts rows. It calls `did` with the answer to each statement, and the number of its rows. */
async function insert(connection: Connection, sql: string, rows: Row[], did?: (answer: unknown, count: number) => Promise<void>): Promise<void> {
  for (let from = 0, to = 0; from < rows.length; from = to) {
    for (let bytes = 0; to < rows.length && to - from < mostRows; to++) {
      bytes += Buffer.byteLength(rows[to]!.join(""));
      if (to > from && bytes > mostBytes) break;
    }
    const part = rows.slice(from, to);
    const tuples = part.map((row) => `(?,CAST(? AS CHAR)${",?".repeat(row.length - 2)})`);
    const answer = await connection.query(sql + tuples.join(","), part.flat());
    await did?.(answer, part.length);
  }
}

/** Returns the columns of the first row of `[rows, fields]` or of rows, as text. */
function firstRow(answer: unknown): string[] {
  const [rows] = answer as unknown[];
  const row: unknown = Array.isArray(rows) ? rows[0] : rows;
  return Object.values(row ?? {}).map(String);
}

/** Returns the first ID that an INSERT received, if the answer tells it exactly. */
function insertId(answer: unknown): bigint | undefined {
  const id = ((Array.isArray(answer) ? answer[0] : answer) as { insertId?: unknown } | undefined)?.insertId;
  return typeof id === "bigint" || typeof id === "string" || Number.isSafeInteger(id) ? BigInt(id as bigint | string | number) : undefined;
}
