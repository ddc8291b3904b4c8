// The program of README.md, which test/readme.test.ts runs.
import { Cache, inTransaction, ioredis } from "@unstale/client";
import { Redis } from "ioredis";
import { createPool, type RowDataPacket } from "mysql2/promise";
import { invalidateProduct, map, productPage } from "../recipes/shopcache.js";

map.check(); // throws if the environment does not have the variables of the map

export const pool = createPool(process.env.MYSQL_URL!);
export const redis = new Redis(process.env.REDIS_URL!);
export const cache = new Cache({ redis: ioredis(redis), primary: pool });

/** Changes a price, and returns a token of the write. */
export async function changePrice(id: number, cents: number): Promise<string> {
  const { token } = await inTransaction(pool, async (tx) => {
    await tx.connection.query("UPDATE products SET price_cents = ? WHERE id = ?", [cents, id]);
    await tx.enqueue(invalidateProduct(id));
  });
  return token;
}

export interface Page {
  id: number;
  cents: number;
}

/** Returns the page of a product, undefined if it does not exist. */
export async function page(id: number, token?: string): Promise<Page | undefined> {
  return cache.fetch(
    productPage<Page | undefined>(id),
    async () => {
      const [rows] = await pool.query<RowDataPacket[]>("SELECT id, price_cents AS cents FROM products WHERE id = ?", [id]);
      return rows[0] as Page | undefined;
    },
    { token },
  );
}

/** Ends all connections. */
export async function stop(): Promise<void> {
  await cache.close();
  redis.disconnect();
  await pool.end();
}

/** Returns the pages of several products with one round trip and at most one query. */
export async function pages(ids: number[]): Promise<Page[]> {
  const found = await cache.fetchMany(
    ids.map((id) => productPage<Page>(id)),
    async (missing) => {
      const wanted = ids.filter((id) => missing.some(({ key }) => key === productPage(id).key));
      const [rows] = await pool.query<RowDataPacket[]>("SELECT id, price_cents AS cents FROM products WHERE id IN (?)", [wanted]);
      return new Map(rows.map((row) => [productPage(row.id).key, row as Page]));
    },
  );
  return [...found.values()];
}
