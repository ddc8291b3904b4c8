import { PrismaMariaDb } from "@prisma/adapter-mariadb";
import { Writes, enqueue, parseToken, type Connection } from "@unstale/client";
import { drizzle } from "drizzle-orm/mysql2";
import knexOf from "knex";
import { Kysely, MysqlDialect } from "kysely";
import { createPool as createCallbackPool } from "mysql2";
import { createPool, type Pool, type RowDataPacket } from "mysql2/promise";
import { DataSource } from "typeorm";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startMySQL, type MySQL } from "../test/mysql.js";
import * as ofDrizzle from "./drizzle.js";
import * as ofKnex from "./knex.js";
import * as ofKysely from "./kysely.js";
import * as ofMysql2 from "./mysql2.js";
import * as ofPrisma from "./prisma.js";
import { PrismaClient } from "./prisma-client/client.js";
import { invalidateProduct } from "./shopcache.js";
import * as ofTypeORM from "./typeorm.js";

/** A recipe, and the transactions of its library. */
interface Recipe {
  rename(id: number, name: string): Promise<unknown>;
  transaction(run: (connection: Connection) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

let mysql: MySQL;
let admin: Pool;
/** Sessions in which most text needs care: see also the sql_mode. */
const options = () => ({ socketPath: mysql.socketPath, user: "root", database: "shop", charset: "latin1" });

beforeAll(async () => {
  mysql = await startMySQL("--sql-mode=STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES");
  await mysql.database("shop");
  admin = createPool({ ...options(), charset: "utf8mb4" });
  await admin.query("CREATE TABLE products (id BIGINT PRIMARY KEY, name VARCHAR(100) NOT NULL, category_id BIGINT NOT NULL DEFAULT 7)");
}, 120_000);

afterAll(async () => {
  await admin?.end();
  await mysql?.stop();
});

beforeEach(async () => {
  await admin.query("DELETE FROM cache_outbox");
  await admin.query("REPLACE INTO products (id, name) VALUES (42, 'old')");
});

type Row = RowDataPacket & { id: number; entity: string; entity_id: string; params: string | null };

async function rows(): Promise<Row[]> {
  const [found] = await admin.query<Row[]>("SELECT id, entity, entity_id, params, trace FROM cache_outbox ORDER BY id");
  return found;
}

async function ids(): Promise<string[]> {
  return (await rows()).map((row) => row.entity_id);
}

const recipes: Record<string, () => Promise<Recipe> | Recipe> = {
  mysql2() {
    const pool = createPool(options());
    return {
      rename: (id, name) => ofMysql2.renameProduct(pool, id, name),
      async transaction(run) {
        const connection = await pool.getConnection();
        try {
          await connection.beginTransaction();
          await run(connection);
          await connection.commit();
        } catch (error) {
          await connection.rollback();
          throw error;
        } finally {
          connection.release();
        }
      },
      close: () => pool.end(),
    };
  },
  Drizzle() {
    const pool = createPool(options());
    const db = drizzle({ client: pool });
    return {
      rename: (id, name) => ofDrizzle.renameProduct(db, id, name),
      transaction: (run) => db.transaction((tx) => run(ofDrizzle.connectionOf(tx))),
      close: () => pool.end(),
    };
  },
  async TypeORM() {
    const dataSource = await ofTypes().initialize();
    return {
      rename: (id, name) => ofTypeORM.renameProduct(dataSource, String(id), name),
      transaction: (run) => dataSource.transaction((manager) => run(ofTypeORM.connectionOf(manager))),
      close: () => dataSource.destroy(),
    };
  },
  Knex() {
    const knex = knexOf({ client: "mysql2", connection: options() });
    return {
      rename: (id, name) => ofKnex.renameProduct(knex, id, name),
      transaction: (run) => knex.transaction((trx) => run(ofKnex.connectionOf(trx))),
      close: () => knex.destroy(),
    };
  },
  Kysely() {
    const db = new Kysely<ofKysely.Database>({ dialect: new MysqlDialect({ pool: createCallbackPool(options()) }) });
    return {
      rename: (id, name) => ofKysely.renameProduct(db, id, name),
      transaction: (run) => db.transaction().execute((trx) => run(ofKysely.connectionOf(trx))),
      close: () => db.destroy(),
    };
  },
  Prisma() {
    const prisma = new PrismaClient({ adapter: new PrismaMariaDb(options()) });
    return {
      rename: (id, name) => ofPrisma.renameProduct(prisma, BigInt(id), name),
      transaction: (run) => prisma.$transaction((tx) => run(ofPrisma.connectionOf(tx))),
      close: () => prisma.$disconnect(),
    };
  },
};

const ofTypes = () => new DataSource({ type: "mysql", ...options(), username: "root", entities: [ofTypeORM.Product] });

describe.each(Object.keys(recipes))("%s", (name) => {
  let recipe: Recipe;
  beforeAll(async () => {
    recipe = await recipes[name]!();
  });
  afterAll(() => recipe?.close());

  test("the recipe writes the change and the row", async () => {
    await recipe.rename(42, "new");
    const [products] = await admin.query("SELECT id, name FROM products");
    expect(products).toEqual([{ id: 42, name: "new" }]);
    expect(await rows()).toMatchObject([{ entity: "product", entity_id: "42", params: null }]);
  });

  test("a commit leaves the row, and a rollback none", async () => {
    await recipe.transaction((connection) => enqueue(connection, invalidateProduct("9007199254740993", { categoryId: [7, 9n] })));
    expect(await rows()).toMatchObject([{ entity: "product", entity_id: "9007199254740993", params: '{"category_id":[7,9]}' }]);
    const failing = recipe.transaction(async (connection) => {
      await enqueue(connection, [invalidateProduct(1), invalidateProduct(2)]);
      throw new Error("sold out");
    });
    await expect(failing).rejects.toThrow("sold out");
    expect(await ids()).toEqual(["9007199254740993"]);
  });

  test("a row with a question mark, quotes, a backslash and other scripts is exact", async () => {
    const id = "a?b ?? :c ${d} 'e' \"f\" \\ \u0000 é 日本 🛒";
    await recipe.transaction((connection) => enqueue(connection, { entity: "coupon", id, params: { a: id }, trace: id }));
    expect(await rows()).toMatchObject([{ entity_id: id, params: JSON.stringify({ a: id }), trace: id }]);
  });

  test("Writes return the token of its rows", async () => {
    const writes = new Writes();
    await recipe.transaction(async (connection) => {
      await writes.enqueue(connection, [invalidateProduct(1), invalidateProduct(2)]);
      await writes.enqueue(connection, invalidateProduct(3));
    });
    const [first] = await rows();
    expect(parseToken(writes.committed()).runs).toEqual([{ first: BigInt(first?.id ?? 0), count: 3, step: 1 }]);
  });
});

test("mysql2: a transaction of the application has the old and the new category", async () => {
  const connection = await admin.getConnection();
  await ofMysql2.moveProduct(connection, 42, 7, 9);
  expect(await rows()).toMatchObject([{ entity_id: "42", params: '{"category_id":[7,9]}' }]);
  await admin.query("RENAME TABLE cache_outbox TO away");
  await expect(ofMysql2.moveProduct(connection, 42, 9, 7)).rejects.toMatchObject({ errno: 1146 });
  await admin.query("RENAME TABLE away TO cache_outbox");
  connection.release();
  const [products] = await admin.query("SELECT category_id FROM products");
  expect(products).toEqual([{ category_id: 9 }]);
});

describe("nested transactions", () => {
  type Run = (enqueue: (id: number) => Promise<void>) => Promise<void>;
  /** What nests two transactions in one: each library has its own. */
  const nesting: Record<string, (both: (nested: (run: Run) => Promise<void>) => Promise<void>) => Promise<void>> = {
    async Drizzle(both) {
      const pool = createPool(options());
      await drizzle({ client: pool }).transaction((outer) =>
        both((run) => outer.transaction((tx) => run((id) => enqueue(ofDrizzle.connectionOf(tx), invalidateProduct(id))))),
      );
      await pool.end();
    },
    async TypeORM(both) {
      const dataSource = await ofTypes().initialize();
      await dataSource.transaction((outer) =>
        both((run) => outer.transaction((manager) => run((id) => enqueue(ofTypeORM.connectionOf(manager), invalidateProduct(id))))),
      );
      await dataSource.destroy();
    },
    async Knex(both) {
      const knex = knexOf({ client: "mysql2", connection: options() });
      await knex.transaction((outer) =>
        both((run) => outer.transaction((trx) => run((id) => enqueue(ofKnex.connectionOf(trx), invalidateProduct(id))))),
      );
      await knex.destroy();
    },
  };

  test.each(Object.keys(nesting))("one after the other, %s keeps the rows of those that succeed", async (name) => {
    await nesting[name]!(async (nested) => {
      await expect(nested((enqueue) => enqueue(1).then(() => Promise.reject(new Error("sold out"))))).rejects.toThrow("sold out");
      await nested((enqueue) => enqueue(2));
    });
    expect(await ids()).toEqual(["2"]);
  });

  test("in parallel, Knex runs them one after the other", async () => {
    await nesting["Knex"]!(async (nested) => {
      const first = nested((enqueue) => enqueue(1).then(() => Promise.reject(new Error("sold out"))));
      await Promise.all([expect(first).rejects.toThrow("sold out"), nested((enqueue) => enqueue(2))]);
    });
    expect(await ids()).toEqual(["2"]);
  });

  // A library that repairs this fails here: then correct its recipe.
  test.each(["Drizzle", "TypeORM"])("in parallel, %s keeps the row of the one that failed, and loses the other", async (name) => {
    const [enqueued, begun, failed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    await nesting[name]!(async (nested) => {
      const first = nested(async (enqueue) => {
        await enqueue(1);
        enqueued.resolve();
        await begun.promise;
        await enqueue(3); // it is undone, so its change can be kept without it
        throw new Error("sold out");
      });
      await enqueued.promise;
      const second = nested(async (enqueue) => {
        await enqueue(2);
        begun.resolve();
        await failed.promise;
      });
      await expect(first).rejects.toThrow("sold out");
      failed.resolve();
      await second;
    });
    expect(await ids()).toEqual(["1"]);
  });
});
