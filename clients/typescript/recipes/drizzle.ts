// Drizzle. Await nested transactions one after the other: Drizzle 0.45 names savepoints by their
// depth, so those of two that run in parallel have one name. If one fails, its row is kept, and the
// other's is lost.
import { enqueue, type Connection } from "@unstale/client";
import { eq, sql, type SQL } from "drizzle-orm";
import { bigint, mysqlTable, varchar } from "drizzle-orm/mysql-core";
import type { MySql2Database } from "drizzle-orm/mysql2";
import { invalidateProduct } from "./shopcache.js";

export const products = mysqlTable("products", {
  id: bigint({ mode: "number" }).primaryKey(),
  name: varchar({ length: 100 }).notNull(),
});

/** The connection of a transaction, for enqueue. Each ? of a statement stands for a value. */
export function connectionOf(tx: { execute(query: SQL): Promise<unknown> }): Connection {
  return {
    query: (text, values = []) => tx.execute(sql.join(text.split("?").flatMap((part, i) => (i === 0 ? [sql.raw(part)] : [sql`${values[i - 1]}`, sql.raw(part)])))),
  };
}

export async function renameProduct(db: MySql2Database, id: number, name: string): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.update(products).set({ name }).where(eq(products.id, id));
    await enqueue(connectionOf(tx), invalidateProduct(id));
  });
}
