import { setTimeout as sleep } from "node:timers/promises";
import { encodeAll, type Invalidation, type Row } from "./row.js";
import { firstRow, formatToken, makeToken, rowsOf, type Queryable, type Token } from "./token.js";

export { FieldError } from "./params.js";
export type { Invalidation, Scalar } from "./row.js";

/**
 * A connection with an open transaction: one of mysql2/promise, or what has a `query` like it. A
 * pool is not one. Each value is null, hex digits or a time, so `execute` works as well as `query`,
 * with any charset and sql_mode of the session.
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
// rows). Text is sent as the hex digits of its UTF-8: no charset or sql_mode of the session changes
// these, and a prepared statement has no number whose type it could keep:
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
 * It checks all of them first: if one is invalid, it throws a FieldError and inserts nothing. After
 * any other error, roll back, since rows may have been inserted. It also throws if mysql2 reports
 * that no transaction is open. The rows are then already committed.
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
    const answer = await connection.query(tokenSQL, []).catch((cause: unknown) => {
      const fix = hasNumber(cause, (n) => n === 1146 || n === 1142 || n === 1143 || n === 1044) ? " (unstale migrate up makes it; the account needs SELECT on cache_outbox_source)" : "";
      throw new Error(`read the outbox's id${fix}: ${messageOf(cause)}`, { cause });
    });
    const [source, made, step] = firstRow(answer);
    if (source === undefined) throw new Error("cache_outbox_source has no row; run unstale migrate up");
    if (!/^[0-9a-f]{32} [0-9]+ [1-9][0-9]*$/.test(`${source} ${made} ${step}`)) throw new Error(`read the outbox's id: the connection returned ${source}, ${made}, ${step}; use it without typeCast`);
    const rows = rowsOf(answer).length;
    if (rows > 1) throw new Error(`cache_outbox_source has ${rows} rows, as in a keyspace with several shards, and each shard has an outbox of its own; connect to one shard`);
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
    super(`commit transaction: ${messageOf(cause)}`, { cause });
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
 * outside of the transaction. Any other error of COMMIT becomes a CommitError. A connection with an
 * open transaction is refused. Connections of a pool are not checked.
 */
export async function inTransaction<C extends Pooled, T>(on: Pool<C>, fn: (tx: Transaction<C>) => Promise<T>): Promise<Committed<T>>;
export async function inTransaction<C extends Connection, T>(on: C, fn: (tx: Transaction<C>) => Promise<T>): Promise<Committed<T>>;
export async function inTransaction<T>(on: Connection | Pool<Pooled>, fn: (tx: Transaction<Pooled>) => Promise<T>): Promise<Committed<T>> {
  for (let tries = 1; ; tries++) {
    const pooled = isPool(on) ? await on.getConnection() : undefined;
    let broken = false;
    try {
      return await attempt(pooled ?? (on as Pooled), pooled === undefined, fn, () => (broken = true));
    } catch (error) {
      if (tries === mostTries || !isContention(error)) throw error;
    } finally {
      if (broken) pooled?.destroy();
      else pooled?.release();
    }
    await sleep(tries * backoff * (1 + Math.random()));
  }
}

/** Throws if a transaction is open: SET TRANSACTION then fails. It changes only the next one. */
async function refuseOpen(connection: Connection): Promise<void> {
  await connection.query("SET TRANSACTION READ WRITE").catch((cause: unknown) => {
    if (!hasNumber(cause, (n) => n === 1568)) throw cause;
    throw new Error("begin transaction: the connection has an open transaction, which this would commit; end it first, or call enqueue in it", { cause });
  });
}

/**
 * Makes one attempt. `given`: the connection is the caller's, not of a pool. It calls `broken` if the
 * connection may still have a transaction.
 */
async function attempt<C extends Connection, T>(connection: C, given: boolean, fn: (tx: Transaction<C>) => Promise<T>, broken: () => void): Promise<Committed<T>> {
  if (busy.has(connection)) throw new Error("begin transaction: inTransaction already runs on this connection; use a pool");
  busy.add(connection);
  const writes = new Writes();
  const enqueued: Promise<void>[] = [];
  let state: "none" | "open" | "ended" | "committing" = "none";
  try {
    if (given) await refuseOpen(connection);
    await connection.query("START TRANSACTION");
    state = "open";
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
    const failedIn = state;
    state = "ended";
    await Promise.allSettled(enqueued);
    if (failedIn === "none") broken();
    else await connection.query("ROLLBACK").catch(broken);
    throw failedIn === "committing" && !isRollback(error) ? new CommitError(writes.committed(), error) : error;
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

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** Reports whether an error or one of its causes passes a test of its number and text. */
function hasNumber(error: unknown, test: (errno: unknown, text: string) => boolean): boolean {
  for (let depth = 0; error instanceof Error && depth < 10; depth++, error = error.cause) {
    if (test((error as { errno?: unknown }).errno, error.message)) return true;
  }
  return false;
}

function isPool(on: Connection | Pool<Pooled>): on is Pool<Pooled> {
  return typeof (on as Pool<Pooled> | undefined)?.getConnection === "function";
}

function encode(connection: Connection, invalidations: Invalidation | readonly Invalidation[]) {
  if (isPool(connection)) throw new TypeError("enqueue: this is a pool; pass the connection that has the transaction");
  if (typeof (connection as Partial<Connection> | undefined)?.query !== "function") throw new TypeError("enqueue: the connection has no method query; the recipes have connectionOf for ORMs");
  return encodeAll(Array.isArray(invalidations) ? invalidations : [invalidations]);
}

/** Inserts rows. It calls `did` with the answer to each statement, and the number of its rows. */
async function insert(connection: Connection, sql: string, rows: Row[], did?: (answer: unknown, count: number) => Promise<void>): Promise<void> {
  for (let from = 0, to = 0; from < rows.length; from = to) {
    for (let bytes = 0; to < rows.length && to - from < mostRows; to++) {
      bytes += 2 * Buffer.byteLength(rows[to]!.join(""));
      if (to > from && bytes > mostBytes) break;
    }
    const part = rows.slice(from, to);
    const tuple = `(${Array.from(rows[0]!, (_, column) => (isText(column) ? "CONVERT(UNHEX(?) USING utf8mb4)" : "?")).join(",")})`;
    const values = part.flatMap((row) => row.map((value, column) => (isText(column) && value !== null ? Buffer.from(value).toString("hex") : value)));
    const answer = await connection.query(sql + part.map(() => tuple).join(","), values);
    const status = header(answer)?.serverStatus;
    if (typeof status === "number" && !(status & inTransactionBit)) throw new Error("enqueue: the connection has no transaction, or it has ended, so the rows are committed; begin one before the change");
    await did?.(answer, part.length);
  }
}

/** Reports whether a column of a row has text: the fifth is a time. */
const isText = (column: number) => column < 4;

/** SERVER_STATUS_IN_TRANS of the protocol. */
const inTransactionBit = 1;

/** Returns what mysql2 and other drivers answer to an INSERT. */
const header = (answer: unknown) => (Array.isArray(answer) ? answer[0] : answer) as { insertId?: unknown; serverStatus?: unknown } | undefined;

/** Returns the first ID that an INSERT received, if the answer tells it exactly. */
function insertId(answer: unknown): bigint | undefined {
  const id = header(answer)?.insertId;
  return typeof id === "bigint" || typeof id === "string" || Number.isSafeInteger(id) ? BigInt(id as bigint | string | number) : undefined;
}
