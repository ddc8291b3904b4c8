// TypeORM. Await nested transactions one after the other: TypeORM 1.1 names savepoints by the
// current depth, so one that runs in parallel rolls back to another's. If one fails, its row is
// kept, and the other's is lost.
import { enqueue, type Connection } from "@unstale/client";
import { EntitySchema, type DataSource, type EntityManager } from "typeorm";
import { invalidateProduct } from "./shopcache.js";

export const Product = new EntitySchema<{ id: string; name: string }>({
  name: "Product",
  tableName: "products",
  columns: { id: { type: "bigint", primary: true }, name: { type: "varchar", length: 100 } },
});

/** The connection of a transaction, for enqueue. */
export function connectionOf(manager: EntityManager): Connection {
  return { query: (sql, values) => manager.query(sql, values) };
}

export async function renameProduct(dataSource: DataSource, id: string, name: string): Promise<void> {
  await dataSource.transaction(async (manager) => {
    await manager.update(Product, { id }, { name });
    await enqueue(connectionOf(manager), invalidateProduct(id));
  });
}
