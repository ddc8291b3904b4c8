// Kysely.
import { enqueue, type Connection } from "@unstale/client";
import { CompiledQuery, type Kysely, type Transaction } from "kysely";
import { invalidateProduct } from "./shopcache.js";

export interface Database {
  products: { id: number; name: string };
}

/** The connection of a transaction, for enqueue. */
export function connectionOf<DB>(trx: Transaction<DB>): Connection {
  return {
    async query(sql, values = []) {
      const { insertId, rows } = await trx.executeQuery(CompiledQuery.raw(sql, values));
      return insertId === undefined ? rows : { insertId };
    },
  };
}

export async function renameProduct(db: Kysely<Database>, id: number, name: string): Promise<void> {
  await db.transaction().execute(async (trx) => {
    await trx.updateTable("products").set({ name }).where("id", "=", id).execute();
    await enqueue(connectionOf(trx), invalidateProduct(id));
  });
}
