import { createConnection, createPool, type Connection, type ConnectionOptions, type RowDataPacket } from "mysql2/promise";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { CommitError, Writes, enqueue, inTransaction } from "../src/outbox.js";
import { FieldError } from "../src/params.js";
import type { Invalidation } from "../src/row.js";
import { parseToken, settled, settledQuery, type Queryable } from "../src/token.js";
import { bytesOf, conformance, type Bytes } from "./conformance.js";
import { startMySQL, type MySQL } from "./mysql.js";

let mysql: MySQL;
let admin: Connection;
const options = () => ({ socketPath: mysql.socketPath, user: "root", database: "shop", multipleStatements: false });

beforeAll(async () => {
  mysql = await startMySQL();
  await mysql.database("shop");
  admin = await createConnection(options());
  await admin.query("CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0)");
  await admin.query("INSERT INTO stock (id) VALUES (1), (2)");
}, 120_000);

afterAll(async () => {
  await admin?.end();
  await mysql?.stop();
});

afterEach(async () => {
  for (const table of ["cache_outbox", "cache_outbox_delayed"]) await admin.query(`DELETE FROM ${table}`);
  await admin.query("UPDATE stock SET n = 0");
});

async function connect(): Promise<Connection> {
  const connection = await createConnection(options());
  onTestFinished(() => connection.destroy());
  return connection;
}

/** Enqueues in a transaction of its own, which it commits even after an error. */
async function write(connection: Connection, invalidations: Invalidation | Invalidation[], on: Queryable = connection): Promise<void> {
  await connection.beginTransaction();
  await enqueue(on, invalidations).finally(() => connection.commit());
}

const prepare = (connection: Connection) => ({ query: (sql: string, values: unknown[] = []) => connection.execute(sql, values as string[]) });

async function rows(table = "cache_outbox"): Promise<RowDataPacket[]> {
  const [found] = await admin.query<RowDataPacket[]>(`SELECT * FROM ${table} ORDER BY id`);
  return found;
}

/**
 * Text of a case. Bytes that are not UTF-8 become a lone surrogate, which no other text of
 * JavaScript has.
 */
function textOf(field: Bytes): string {
  const bytes = bytesOf(field);
  const text = bytes.toString("utf8");
  return Buffer.from(text).equals(bytes) ? text : bytes.toString("latin1").replace(/\xed\xa0\x80|\xff/, "\ud800");
}

const product: Invalidation = { entity: "product", id: 42 };

describe("rows.json", () => {
  interface Case {
    reason: string;
    entity: Bytes;
    id: Bytes;
    params: Bytes;
    required?: string[];
    trace: Bytes;
    field?: string;
    problem?: string;
  }
  const { cases } = conformance<{ cases: Case[] }>("rows");

  test.each(cases)("$reason", async ({ entity, id, params, trace, required = [], field, problem }) => {
    const row = { entity: textOf(entity), id: textOf(id), rawParams: textOf(params), trace: textOf(trace), required };
    const connection = await connect();
    const done = write(connection, row);
    if (field !== undefined) {
      const error = await done.catch((error: unknown) => error);
      expect(error).toBeInstanceOf(FieldError);
      expect(error).toMatchObject({ index: 0, field, problem: problem?.replace("\\xff", "\\xed\\xa0\\x80") });
      expect(await rows()).toEqual([]);
      return;
    }
    await done;
    const stored = await admin.query<RowDataPacket[]>("SELECT entity, entity_id, COALESCE(params, '') AS params, trace FROM cache_outbox");
    expect(stored[0]).toEqual([{ entity: row.entity, entity_id: row.id, params: row.rawParams, trace: row.trace }]);
  });
});

describe("tokens.json", () => {
  interface Case {
    reason: string;
    token: Bytes;
    query?: string[];
  }
  const { cases } = conformance<{ cases: Case[] }>("tokens");

  test.each(cases.filter((one) => one.query))("MySQL answers the statement of: $reason", async ({ token, query }) => {
    const parsed = parseToken(textOf(token));
    expect(settledQuery(parsed).split("\n")).toEqual(query);
    expect(await settled(admin, parsed)).toMatchObject({ settled: false, error: "the token belongs to another outbox" });
  });
});

describe("enqueue", () => {
  test("commits and rolls back with the caller's transaction", async () => {
    const connection = await connect();
    await connection.beginTransaction();
    await enqueue(connection, [product, { entity: "coupon", id: "SUMMER" }]);
    expect(await rows()).toEqual([]);
    await connection.commit();
    expect(await rows()).toMatchObject([
      { entity: "product", entity_id: "42", params: null, trace: "" },
      { entity: "coupon", entity_id: "SUMMER" },
    ]);
    await connection.beginTransaction();
    await enqueue(connection, product);
    await connection.rollback();
    expect(await rows()).toHaveLength(2);
    await enqueue(connection, []);
    expect(await rows()).toHaveLength(2);
  });

  const ids = [0, -0, -7, Number.MAX_SAFE_INTEGER, 2n ** 64n, -(2n ** 63n), "9007199254740993", "007", "1e5", "0x10", "it's \\ \" \n ~", "\u0000", " 42 ", "日本", "Ω é €", "🛒"];

  test.each([
    ["the defaults", {}, ""],
    ["latin1", { charset: "latin1" }, ""],
    ["utf8mb3", { charset: "UTF8_GENERAL_CI" }, ""],
    ["sjis", { charset: "sjis" }, ""],
    ["NO_BACKSLASH_ESCAPES", {}, "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES,ANSI_QUOTES')"],
    ["SET NAMES", {}, "SET NAMES latin1"],
  ])("sends text exactly, with query and with execute: %s", async (_, setting, sql) => {
    const connection = await createConnection({ ...options(), ...setting });
    onTestFinished(() => connection.destroy());
    if (sql) await connection.query(sql);
    for (const on of [connection, prepare(connection)]) {
      const texts = ids.map(String);
      await write(connection, ids.map((id, i) => ({ entity: "é🛒", id, params: { [texts[i]!]: texts[i] }, trace: texts[i]! })), on);
      await write(connection, ids.map((id) => ({ ...product, id, notBefore: new Date() })), on);
      const want = texts.map((id) => ({ entity: "é🛒", entity_id: id, params: JSON.stringify({ [id]: id }), trace: id }));
      expect(await rows()).toMatchObject(want);
      expect((await rows("cache_outbox_delayed")).map((row) => row["entity_id"])).toEqual(texts);
      for (const table of ["cache_outbox", "cache_outbox_delayed"]) await admin.query(`DELETE FROM ${table}`);
    }
  });

  test("an ID stays text in a prepared statement whose first ID was a number", async () => {
    const connection = await connect();
    const statements: string[] = [];
    await write(connection, { entity: "product", id: "1e5" }, { query: (sql, values) => (statements.push(sql), prepare(connection).query(sql, values)) });
    const other = await connect();
    await other.execute(statements[0]!, ["70", 3432, null, ""]);
    await write(other, { entity: "product", id: "1e5" }, prepare(other));
    expect((await rows()).map((row) => row["entity_id"])).toEqual(["1e5", "42", "1e5"]);
  });

  test.each<[string, unknown]>([
    ["1.5 is not an integer", 1.5],
    ["NaN is not an integer", NaN],
    ["Infinity is not an integer", Infinity],
    ["9007199254740992 is beyond 2^53, where numbers are not exact; pass a bigint or text", 2 ** 53],
    ["a boolean is not an ID; pass text, an integer or a bigint", true],
    ["null is not an ID; pass text, an integer or a bigint", null],
    ["undefined is not an ID; pass text, an integer or a bigint", undefined],
    ["a list is not an ID; pass text, an integer or a bigint", [42]],
    ["an object of class Buffer is not an ID; pass text, an integer or a bigint", Buffer.from("42")],
    ['"a\\xed\\xa0\\x80" is not valid UTF-8', "a\ud800"],
    ['"\\xed\\xbf\\xbf\\xed\\xbf\\xbf" is not valid UTF-8', "\udfff".repeat(2)],
  ])("an ID: %s", async (problem, id) => {
    const connection = await connect();
    const error = await write(connection, [product, { entity: "product", id: id as string }]).catch((error: unknown) => error);
    expect(error).toMatchObject({ name: "FieldError", message: `invalidation 1: id: ${problem}` });
    expect(await rows()).toEqual([]);
  });

  test.each<[string | null, Partial<Invalidation>]>([
    ['{"a":1.5,"b":[7,9,"x",true],"c":[]}', { params: { b: [7, 9n, "x", true], a: 1.5, c: [] } }],
    [null, { params: { a: undefined } }],
    [null, { params: {} }],
    ['{"b":"é🛒\\n\\""}', { params: { a: undefined, b: "é🛒\n\"" } }],
    ['{"n":[9007199254740993,9007199254740993,7]}', { params: { n: ["9007199254740993", 9007199254740993n, 7] }, types: { n: "int" } }],
    ['{"u":"0af76519-16cd-43dd-8448-eb211c80319c"}', { params: { u: "0AF76519-16CD-43DD-8448-EB211C80319C" }, types: { u: "uuid" } }],
    ['{"category_id":[]}', { params: { category_id: [] }, required: ["category_id"] }],
  ])("writes the parameters %s", async (want, part) => {
    await write(await connect(), { ...product, ...part });
    expect((await rows())[0]?.["params"]).toBe(want);
  });

  test.each<[string, Partial<Record<keyof Invalidation, unknown>>]>([
    ["params.a: is null; leave it out", { params: { a: null } }],
    ["params.a: element 1: is undefined; leave it out", { params: { a: [1, undefined] } }],
    ["params.a: element 0: a list is neither a scalar nor a list of scalars; pass text, a number, a bigint, a boolean or a list of these", { params: { a: [[1]] } }],
    ["params.a: an object of class Date is neither a scalar nor a list of scalars; pass text, a number, a bigint, a boolean or a list of these", { params: { a: new Date(0) } }],
    ["params.a: NaN is not a number that JSON can represent", { params: { a: NaN } }],
    ["params.a: 9007199254740992 is beyond 2^53, where numbers are not exact; pass a bigint or text", { params: { a: 2 ** 53 } }],
    ['params.a: "\\xed\\xb0\\x80" is not valid UTF-8', { params: { a: "\udc00" } }],
    ['params: the name "\\xed\\xb0\\x80" is not valid UTF-8', { params: { "\udc00": 1 } }],
    ["params: a parameter has an empty name", { params: { "": 1 } }],
    ["params: params and rawParams are both set; set one", { params: { a: 1 }, rawParams: "{}" }],
    ["params: 65544 bytes of JSON are more than 65536; pass ids, not documents", { params: { a: "x".repeat(65536) } }],
    ["params.a: is missing; the map requires it", { params: { a: undefined }, required: ["a"] }],
    ['params.a: "1.5" is not an integer of 64 bits, as in the map', { params: { a: 1.5 }, types: { a: "int" } }],
    ['params.a: element 1: "042" is not an integer of 64 bits, as in the map', { params: { a: [1, "042"] }, types: { a: "int" } }],
    ['params.a: "true" is not an integer of 64 bits, as in the map', { params: { a: true }, types: { a: "int" } }],
    ['id: "1e5" is not an integer of 64 bits, as in the map', { id: "1e5", types: { id: "int" } }],
    ['id: "9223372036854775808" is not an integer of 64 bits, as in the map', { id: 2n ** 63n, types: { id: "int" } }],
    ['id: "x" is not a UUID, as in the map', { id: "x", types: { id: "uuid" } }],
    ["id: is empty; it is required", { id: "", types: { id: "int" } }],
    ["params.a: element 1: is undefined; leave it out", { params: { a: [1, , 3] } }],
    ["params: null is not a plain object; pass names with values, such as { category_id: 7 }", { params: null }],
    ["params: a list is not a plain object; pass names with values, such as { category_id: 7 }", { params: [1, 2] }],
    ["params: an object of class Map is not a plain object; pass names with values, such as { category_id: 7 }", { params: new Map([["a", 1]]) }],
    ["params: rawParams: a number is not text", { rawParams: 5 }],
    ["params.a: decode value: 1e99999 is a number that MySQL does not accept; pass text", { rawParams: '{"a":1e99999}' }],
    ["params.a: decode value: -999999999999999999999999999999999999999... is a number that MySQL does not accept; pass text", { rawParams: `{"a":[1,-${"9".repeat(400)}]}` }],
    ["params: required: a string is not a list of names", { required: "a" }],
    ["params: types: null is not a plain object", { types: null }],
    ["not_before: a string is not a Date", { notBefore: "2020-01-01" }],
    ["not_before: null is not a Date", { notBefore: null }],
    ["entity: a number is not text", { entity: 7 }],
    ['entity: "a\\xed\\xa0\\x80" is not valid UTF-8', { entity: "a\ud800" }],
    ['trace: "\\xed\\xa0\\x80" is not valid UTF-8', { trace: "\ud800" }],
    ["not_before: is not a date", { notBefore: new Date(NaN) }],
    ["not_before: year 1969 is outside 1970 to 9999", { notBefore: new Date(-1) }],
    ["not_before: year 10000 is outside 1970 to 9999", { notBefore: new Date("+010000-01-01T00:00:00Z") }],
  ])("refuses: %s", async (problem, part) => {
    const connection = await connect();
    await expect(write(connection, { ...product, ...part } as Invalidation)).rejects.toThrow(new FieldError(...(problem.split(/: (.*)/s, 2) as [string, string])));
    expect(await rows()).toEqual([]);
  });

  test.each([
    ["undefined", undefined],
    ["null", null],
    ["a string", "product"],
    ["a list", [product, [product]]],
    ["undefined", [product, undefined]],
    ["undefined", [product, , product]],
  ])("refuses %s instead of an invalidation", async (what, invalidations) => {
    const problem = `invalidation ${Array.isArray(invalidations) ? 1 : 0}: ${what} is not an invalidation; pass { entity, id }, or what generated code returns`;
    await expect(write(await connect(), invalidations as Invalidation[])).rejects.toThrow(expect.objectContaining({ name: "FieldError", field: "", message: problem }));
    expect(await rows()).toEqual([]);
  });

  test("a delayed row is due in UTC, in any time zone of the session", async () => {
    const connection = await connect();
    await connection.query("SET time_zone = '+05:00'");
    const notBefore = new Date("2031-02-03T04:05:06.789Z");
    await write(connection, [{ ...product, notBefore }, product]);
    expect(await rows()).toHaveLength(1);
    const [due] = await admin.query<RowDataPacket[]>("SELECT entity_id, CAST(due_at AS CHAR) AS due FROM cache_outbox_delayed");
    expect(due).toEqual([{ entity_id: "42", due: "2031-02-03 04:05:06.789000" }]);
  });

  test("a trace is the row's own", async () => {
    await write(await connect(), [{ ...product, trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, product]);
    expect((await rows()).map((row) => row["trace"])).toEqual(["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""]);
  });

  test("a connection without a transaction is refused", async () => {
    const connection = await connect();
    for (const on of [connection, prepare(connection)]) {
      for (const row of [product, { ...product, notBefore: new Date() }]) await expect(enqueue(on, row)).rejects.toThrow("enqueue: the connection has no transaction, or it has ended");
    }
    await connection.beginTransaction();
    await enqueue(connection, product);
    await connection.query("CREATE TABLE IF NOT EXISTS stock (id INT)"); // which commits
    await expect(new Writes().enqueue(connection, product)).rejects.toThrow("begin one before the change");
    await connection.query("XA START 'x'");
    await enqueue(connection, product);
    for (const statement of ["XA END 'x'", "XA ROLLBACK 'x'", "SET autocommit = 0"]) await connection.query(statement);
    await enqueue(connection, { entity: "product", id: "undone" });
    await connection.rollback();
    expect((await rows()).map((row) => row["entity_id"])).not.toContain("undone");
  });

  test("a pool is refused, because its connections have no common transaction", async () => {
    const pool = createPool(options());
    // @ts-expect-error a pool is not a Connection
    await expect(enqueue(pool, product)).rejects.toThrow("this is a pool");
    await pool.end();
  });

  test("what is no connection is named", async () => {
    for (const on of [undefined, { query: {} }]) await expect(enqueue(on as unknown as Connection, product)).rejects.toThrow("enqueue: the connection has no method query");
  });

  test("many rows become statements of at most 500 rows and about 1 MiB", async () => {
    const connection = await connect();
    const statements: number[] = [];
    const counted = { query: (sql: string, values: unknown[] = []) => (statements.push(values.length / 4), connection.query(sql, values)) };
    await write(connection, Array.from({ length: 1201 }, (_, i) => ({ entity: "product", id: i })), counted);
    expect(statements.splice(0)).toEqual([500, 500, 201]);
    await write(connection, Array.from({ length: 40 }, () => ({ entity: "product", id: 1, rawParams: `{"a":"${"é".repeat(30_000)}"}` })), counted);
    expect(statements).toEqual([8, 8, 8, 8, 8]);
    expect((await rows()).map((row) => row["entity_id"]).slice(0, 1201)).toEqual(Array.from({ length: 1201 }, (_, i) => String(i)));
  });
});

describe("inTransaction", () => {
  /** Ends a statement with an error of the server. */
  const fail = (connection: Connection, errno: number, text = "") => connection.query(`SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ${errno}, MESSAGE_TEXT = '${text}'`);

  test("commits, and returns the result and the token of the rows", async () => {
    const connection = await connect();
    const { result, token } = await inTransaction(connection, async (tx) => {
      await tx.connection.query("UPDATE stock SET n = 1 WHERE id = 1");
      await tx.enqueue([product, product]);
      await tx.enqueue({ ...product, notBefore: new Date(Date.now() + 3_600_000) });
      await tx.enqueue(product);
      return "done";
    });
    const ids = (await rows()).map((row) => Number(row["id"]));
    expect(result).toBe("done");
    const parsed = parseToken(token);
    const [[server]] = await admin.query<RowDataPacket[]>("SELECT id, UNIX_TIMESTAMP() AS now FROM cache_outbox_source");
    expect(parsed).toMatchObject({ source: server?.["id"], many: false });
    expect(server?.["now"] - parsed.made).toBeLessThan(5);
    expect(parsed.runs).toEqual([{ first: BigInt(ids[0] ?? 0), count: 3, step: 1 }]);
    expect(await settled(admin, parsed)).toMatchObject({ settled: false });
    await admin.query("DELETE FROM cache_outbox");
    expect(await settled(admin, parsed)).toMatchObject({ settled: true });
  });

  test("a token has the IDs of all statements, also with an increment, and without insertId", async () => {
    const connection = await connect();
    await connection.query("SET SESSION auto_increment_increment = 7");
    const silent = {
      async query(sql: string, values: unknown[] = []) {
        const [answer] = await connection.query(sql, values);
        return Array.isArray(answer) ? answer : 1; // as Prisma does
      },
    };
    for (const on of [connection, silent]) {
      const { token } = await inTransaction(on, (tx) => tx.enqueue(Array.from({ length: 3 }, () => product)));
      const ids = (await rows()).map((row) => BigInt(row["id"]));
      expect(parseToken(token).runs).toEqual([{ first: ids[0], count: 3, step: 7 }]);
      expect(ids[2]! - ids[0]!).toBe(14n);
      await admin.query("DELETE FROM cache_outbox");
    }
    const { token } = await inTransaction(connection, (tx) => tx.enqueue(Array.from({ length: 1001 }, () => product)));
    expect(parseToken(token)).toMatchObject({ many: true, runs: [] });
  });

  test("without rows, the token is empty, and the account needs no privilege for it", async () => {
    const connection = await connect();
    expect(await inTransaction(connection, async () => 7)).toEqual({ result: 7, token: "" });
    const { token } = await inTransaction(connection, (tx) => tx.enqueue({ ...product, notBefore: new Date() }));
    expect(token).toBe("");
  });

  test("rolls back if the function throws", async () => {
    const connection = await connect();
    const error = new Error("sold out");
    await expect(
      inTransaction(connection, async (tx) => {
        await tx.enqueue(product);
        throw error;
      }),
    ).rejects.toBe(error);
    expect(await rows()).toEqual([]);
  });

  test("an enqueue that nobody awaits is part of the transaction, and so is its error", async () => {
    const connection = await connect();
    await inTransaction(connection, async (tx) => void tx.enqueue(product));
    expect(await rows()).toHaveLength(1);
    const caught = inTransaction(connection, async (tx) => {
      await tx.enqueue(product);
      await tx.enqueue({ entity: "product", id: "" }).catch(() => undefined);
    });
    await expect(caught).rejects.toThrow(FieldError);
    expect(await rows()).toHaveLength(1);
  });

  test("refuses an enqueue after the end, and a transaction within one", async () => {
    const connection = await connect();
    let late: () => Promise<void> = async () => undefined;
    await inTransaction(connection, async (tx) => {
      late = () => tx.enqueue(product);
      await expect(inTransaction(connection, async () => 1)).rejects.toThrow("already runs on this connection");
      await tx.enqueue(product);
    });
    await expect(late()).rejects.toThrow("the transaction has ended");
    expect(await rows()).toHaveLength(1);
  });

  test("refuses a connection that has a transaction, and leaves it open", async () => {
    const connection = await connect();
    await connection.query("START TRANSACTION READ WRITE");
    await connection.query("UPDATE stock SET n = 1");
    const error = await inTransaction(connection, (tx) => tx.enqueue(product)).catch((error: unknown) => error);
    expect(error).toMatchObject({ message: expect.stringContaining("begin transaction: the connection has an open transaction"), cause: { errno: 1568 } });
    await connection.rollback();
    expect((await rows("stock")).map((row) => row["n"])).toEqual([0, 0]);
    await connection.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    const { result } = await inTransaction(connection, async (tx) => {
      await tx.enqueue(product);
      return tx.connection.query("SELECT trx_isolation_level AS level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()");
    });
    expect(result[0]).toEqual([{ level: "SERIALIZABLE" }]);
  });

  test.each<[string, ConnectionOptions]>([
    ["nestTables: true", { nestTables: true }],
    ["nestTables", { nestTables: "_" }],
    ["rowsAsArray", { rowsAsArray: true }],
    ["big numbers as text", { supportBigNumbers: true, bigNumberStrings: true }],
    ["text of a typeCast", { typeCast: (field) => field.string() }],
    ["bytes of a typeCast", { typeCast: (field) => field.buffer() }],
  ])("works on a connection with %s", async (_, setting) => {
    const connection = await createConnection({ ...options(), ...setting });
    onTestFinished(() => connection.destroy());
    const { token } = await inTransaction(connection, (tx) => tx.enqueue(product));
    expect(parseToken(token).runs).toHaveLength(1);
    expect(await settled(connection, parseToken(token))).toMatchObject({ settled: false, left: expect.closeTo(300, -1) });
  });

  test("names a typeCast that changes the answer", async () => {
    const connection = await createConnection({ ...options(), typeCast: () => null });
    onTestFinished(() => connection.destroy());
    await expect(inTransaction(connection, (tx) => tx.enqueue(product))).rejects.toThrow("read the outbox's id: the connection returned null, null, null; use it without typeCast");
    const { token } = await inTransaction(admin, (tx) => tx.enqueue(product));
    await expect(settled(connection, parseToken(token))).rejects.toThrow("use it without typeCast");
  });

  test("repeats a deadlock", async () => {
    const pool = createPool(options());
    const locked = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let attempts = 0;
    const one = (mine: number) =>
      inTransaction(pool, async (tx) => {
        attempts++;
        await tx.connection.query("UPDATE stock SET n = n + 1 WHERE id = ?", [mine]);
        await tx.enqueue({ entity: "stock", id: mine });
        locked[mine - 1]?.resolve();
        await Promise.all(locked.map((lock) => lock.promise));
        await tx.connection.query("UPDATE stock SET n = n + 1 WHERE id = ?", [3 - mine]);
      });
    const done = await Promise.all([one(1), one(2)]);
    expect(attempts).toBe(3);
    const found = await rows();
    expect(found).toHaveLength(2);
    expect(done.map(({ token }) => parseToken(token).runs[0]?.first).sort()).toEqual(found.map((row) => BigInt(row["id"])));
    expect((await rows("stock")).map((row) => row["n"])).toEqual([2, 2]);
    await pool.end();
  });

  test.each([1213, 1205, 1020, 3101])("repeats error %i five times in total, also if it is wrapped", async (errno) => {
    const connection = await connect();
    let attempts = 0;
    const failing = inTransaction(connection, async (tx) => {
      attempts++;
      await tx.enqueue(product);
      await fail(tx.connection, errno).catch((cause: unknown) => {
        throw attempts % 2 === 0 ? cause : new Error("query failed", { cause });
      });
    });
    await expect(failing).rejects.toThrow("query failed");
    expect(attempts).toBe(5);
    expect(await rows()).toEqual([]);
  });

  test("does not repeat other errors", async () => {
    const connection = await connect();
    let attempts = 0;
    await expect(inTransaction(connection, (tx) => (attempts++, fail(tx.connection, 1062)))).rejects.toMatchObject({ errno: 1062 });
    expect(attempts).toBe(1);
  });

  /** Makes COMMIT an error of the server, the first time. */
  function refusingCommit(connection: Connection, errno: number, text: string) {
    let refused = false;
    return {
      query: (sql: string, values: unknown[] = []) => {
        const refuse = sql === "COMMIT" && !refused;
        refused ||= refuse;
        return refuse ? fail(connection, errno, text) : connection.query(sql, values);
      },
    };
  }

  test.each([
    [1213, ""],
    [3101, ""],
    [1180, "Got error 149 during COMMIT"],
  ])("repeats a COMMIT that is rolled back: %i %s", async (errno, text) => {
    const { token } = await inTransaction(refusingCommit(await connect(), errno, text), (tx) => tx.enqueue(product));
    const found = await rows();
    expect(found).toHaveLength(1);
    expect(parseToken(token).runs).toEqual([{ first: BigInt(found[0]?.["id"]), count: 1, step: 1 }]);
  });

  test.each([1205, 3100, 1180])("does not repeat a COMMIT that may have been done: %i", async (errno) => {
    const connection = await connect();
    let attempts = 0;
    const failing = inTransaction(refusingCommit(connection, errno, "Got error 28"), (tx) => (attempts++, tx.enqueue(product)));
    const error = await failing.catch((error: unknown) => error as CommitError);
    expect(error).toBeInstanceOf(CommitError);
    expect(error).toMatchObject({ message: "commit transaction: Got error 28", cause: { errno } });
    expect(parseToken((error as CommitError).token).runs).toHaveLength(1);
    expect(attempts).toBe(1);
    expect(await rows()).toEqual([]);
  });

  test("a connection that is lost before COMMIT does not return to the pool", async () => {
    const pool = createPool({ ...options(), connectionLimit: 1 });
    const lost = inTransaction(pool, async (tx) => {
      await tx.enqueue(product);
      await admin.query("KILL ?", [tx.connection.threadId]);
    });
    await expect(lost).rejects.toBeInstanceOf(CommitError);
    await inTransaction(pool, (tx) => tx.enqueue(product));
    await expect(inTransaction(pool, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    await inTransaction(pool, (tx) => tx.enqueue(product));
    expect(await rows()).toHaveLength(2);
    await pool.end();
  });

  test("the token's time is that of the commit", async () => {
    const connection = await connect();
    const { token } = await inTransaction(connection, async (tx) => {
      await tx.enqueue(product);
      await tx.connection.query("SELECT SLEEP(1.1)");
    });
    const [[server]] = await admin.query<RowDataPacket[]>("SELECT UNIX_TIMESTAMP() AS now");
    expect(server?.["now"] - parseToken(token).made).toBeLessThanOrEqual(1);
  });

  test("what is missing is named", async () => {
    await admin.query("RENAME TABLE cache_outbox_source TO source");
    onTestFinished(async () => void (await admin.query("RENAME TABLE source TO cache_outbox_source")));
    const connection = await connect();
    await expect(inTransaction(connection, (tx) => tx.enqueue(product))).rejects.toMatchObject({ message: expect.stringContaining("unstale migrate up"), cause: { errno: 1146 } });
    await write(connection, product);
  });

  test("several shards are refused", async () => {
    await admin.query("RENAME TABLE cache_outbox_source TO source");
    onTestFinished(async () => void (await admin.query("RENAME TABLE source TO cache_outbox_source")));
    await admin.query("CREATE VIEW cache_outbox_source AS SELECT one, id FROM source CROSS JOIN (SELECT 1 UNION SELECT 2) AS shards");
    onTestFinished(async () => void (await admin.query("DROP VIEW cache_outbox_source")));
    const connection = await connect();
    await expect(inTransaction(connection, (tx) => tx.enqueue(product))).rejects.toThrow("cache_outbox_source has 2 rows, as in a keyspace with several shards");
  });

  test("an error that no migration repairs does not ask for one", async () => {
    const connection = await connect();
    const lost = inTransaction(connection, async (tx) => {
      await admin.query("KILL ?", [connection.threadId]);
      await tx.enqueue(product);
    });
    await expect(lost).rejects.toThrow(/^read the outbox's id: [^(]*$/);
  });

  test("Writes collect the rows of any transaction", async () => {
    const connection = await connect();
    const writes = new Writes();
    expect(writes.committed()).toBe("");
    await connection.beginTransaction();
    await Promise.all([writes.enqueue(connection, product), writes.enqueue(connection, product)]);
    await connection.commit();
    expect(parseToken(writes.committed()).runs).toMatchObject([{ count: 2 }]);
  });
});
