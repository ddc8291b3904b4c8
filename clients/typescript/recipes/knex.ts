// Knex. It runs nested transactions one after the other.
import { enqueue, type Connection } from "@unstale/client";
import type { Knex } from "knex";
import { invalidateProduct } from "./shopcache.js";

/** The connection of a transaction, for enqueue. */
export function connectionOf(trx: Knex.Transaction): Connection {
  return { query: async (sql, values = []) => (await trx.raw(sql, values as Knex.RawBinding[])) as unknown };
}

export async function renameProduct(knex: Knex, id: number, name: string): Promise<void> {
  await knex.transaction(async (trx) => {
    await trx("products").where({ id }).update({ name });
    await enqueue(connectionOf(trx), invalidateProduct(id));
  });
}
