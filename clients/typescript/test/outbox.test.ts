import { createConnection, createPool, type Connection, type RowDataPacket } from "mysql2/promise";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { CommitError, Writes, enqueue, inTransaction } from "../src/outbox.js";
import { FieldError } from "../src/params.js";
import type { Invalidation } from "../src/row.js";
import { parseToken, settled, settledQuery } from "../src/token.js";
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
    const done = enqueue(connection, row);
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

  test("sends IDs exactly, as text, with query and with execute", async () => {
    const ids = [0, -0, -7, Number.MAX_SAFE_INTEGER, 2n ** 64n, -(2n ** 63n), "9007199254740993", "007", "1e5", "0x10", "it's \\ \"", "\u0000", " 42 "];
    const connection = await connect();
    const prepared = { query: (sql: string, values: unknown[] = []) => connection.execute(sql, values as string[]) };
    for (const on of [connection, prepared]) {
      for (const id of ids) await enqueue(on, { entity: "product", id });
      expect((await rows()).map((row) => row["entity_id"])).toEqual(ids.map(String));
      await admin.query("DELETE FROM cache_outbox");
    }
  });

  test("an ID stays text in a prepared statement whose first ID was a number", async () => {
    const connection = await connect();
    const statements: string[] = [];
    const prepared = { query: (sql: string, values: unknown[] = []) => (statements.push(sql), connection.execute(sql, values as string[])) };
    await enqueue(prepared, { entity: "product", id: "1e5" });
    const other = await connect();
    await other.execute(statements[0] ?? "", ["product", 42, null, ""]);
    await enqueue({ query: (sql, values) => other.execute(sql, values as string[]) }, { entity: "product", id: "1e5" });
    expect((await rows()).map((row) => row["entity_id"])).toEqual(["1e5", "42", "1e5"]);
  });

  test("text is exact without backslash escapes, with execute", async () => {
    const connection = await connect();
    await connection.query("SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')");
    const id = "it's \\ \" \n";
    await enqueue({ query: (sql, values) => connection.execute(sql, values as string[]) }, { entity: "product", id });
    expect((await rows())[0]?.["entity_id"]).toBe(id);
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
    ["an object is not an ID; pass text, an integer or a bigint", Buffer.from("42")],
    ['"a\\xed\\xa0\\x80" is not valid UTF-8', "a\ud800"],
    ['"\\xed\\xbf\\xbf\\xed\\xbf\\xbf" is not valid UTF-8', "\udfff".repeat(2)],
  ])("an ID: %s", async (problem, id) => {
    const connection = await connect();
    const error = await enqueue(connection, [product, { entity: "product", id: id as string }]).catch((error: unknown) => error);
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
    await enqueue(await connect(), { ...product, ...part });
    expect((await rows())[0]?.["params"]).toBe(want);
  });

  test.each<[string, Partial<Record<keyof Invalidation, unknown>>]>([
    ["params.a: is null; leave it out", { params: { a: null } }],
    ["params.a: element 1: is undefined; leave it out", { params: { a: [1, undefined] } }],
    ["params.a: element 0: a list is neither a scalar nor a list of scalars; pass text, a number, a bigint, a boolean or a list of these", { params: { a: [[1]] } }],
    ["params.a: an object is neither a scalar nor a list of scalars; pass text, a number, a bigint, a boolean or a list of these", { params: { a: new Date(0) } }],
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
    ["entity: a number is not text", { entity: 7 }],
    ['entity: "a\\xed\\xa0\\x80" is not valid UTF-8', { entity: "a\ud800" }],
    ['trace: "\\xed\\xa0\\x80" is not valid UTF-8', { trace: "\ud800" }],
    ["not_before: is not a date", { notBefore: new Date(NaN) }],
    ["not_before: year 1969 is outside 1970 to 9999", { notBefore: new Date(-1) }],
    ["not_before: year 10000 is outside 1970 to 9999", { notBefore: new Date("+010000-01-01T00:00:00Z") }],
  ])("refuses: %s", async (problem, part) => {
    const connection = await connect();
    await expect(enqueue(connection, { ...product, ...part } as Invalidation)).rejects.toThrow(new FieldError(...(problem.split(/: (.*)/s, 2) as [string, string])));
    expect(await rows()).toEqual([]);
  });

  test("a delayed row is due in UTC, in any time zone of the session", async () => {
    const connection = await connect();
    await connection.query("SET time_zone = '+05:00'");
    const notBefore = new Date("2031-02-03T04:05:06.789Z");
    await enqueue(connection, [{ ...product, notBefore }, product]);
    expect(await rows()).toHaveLength(1);
    const [due] = await admin.query<RowDataPacket[]>("SELECT entity_id, CAST(due_at AS CHAR) AS due FROM cache_outbox_delayed");
    expect(due).toEqual([{ entity_id: "42", due: "2031-02-03 04:05:06.789000" }]);
  });

  test("a trace is the row's own", async () => {
    await enqueue(await connect(), [{ ...product, trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, product]);
    expect((await rows()).map((row) => row["trace"])).toEqual(["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""]);
  });

  test("a pool is refused, because its connections have no common transaction", async () => {
    const pool = createPool(options());
    // @ts-expect-error a pool is not a Connection
    await expect(enqueue(pool, product)).rejects.toThrow("this is a pool");
    await pool.end();
  });

  test("many rows become statements of at most 500 rows and about 1 MiB", async () => {
    const connection = await connect();
    const statements: number[] = [];
    const counted = { query: (sql: string, values: unknown[] = []) => (statements.push(values.length / 4), connection.query(sql, values)) };
    await enqueue(counted, Array.from({ length: 1201 }, (_, i) => ({ entity: "product", id: i })));
    expect(statements.splice(0)).toEqual([500, 500, 201]);
    await enqueue(counted, Array.from({ length: 40 }, () => ({ entity: "product", id: 1, rawParams: `{"a":"${"é".repeat(30_000)}"}` })));
    expect(statements).toEqual([17, 17, 6]);
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
    await enqueue(connection, product);
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
