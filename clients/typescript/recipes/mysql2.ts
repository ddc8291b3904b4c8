// mysql2. inTransaction begins, commits, and repeats a deadlock. Its token lets a reader see this
// write.
import { enqueue, inTransaction } from "@unstale/client";
import type { Connection, Pool } from "mysql2/promise";
import { invalidateProduct } from "./shopcache.js";

export async function renameProduct(pool: Pool, id: number, name: string): Promise<string> {
  const { token } = await inTransaction(pool, async (tx) => {
    await tx.connection.execute("UPDATE products SET name = ? WHERE id = ?", [name, id]);
    await tx.enqueue(invalidateProduct(id));
  });
  return token;
}

// In a transaction of your own, pass its connection.
export async function moveProduct(connection: Connection, id: number, from: number, to: number): Promise<void> {
  await connection.beginTransaction();
  try {
    await connection.execute("UPDATE products SET category_id = ? WHERE id = ?", [to, id]);
    await enqueue(connection, invalidateProduct(id, { categoryId: [from, to] })); // old and new
    await connection.commit();
  } catch (error) {
    await connection.rollback();
    throw error;
  }
}
