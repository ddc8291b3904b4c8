// Prisma 7 with @prisma/adapter-mariadb. `PRISMA_SCHEMA_ENGINE_BINARY=/bin/true prisma generate`
// makes ./prisma-client without downloading an engine.
import { enqueue, type Connection } from "@unstale/client";
import type { Prisma, PrismaClient } from "./prisma-client/client.js";
import { invalidateProduct } from "./shopcache.js";

/** The connection of an interactive transaction, for enqueue. */
export function connectionOf(tx: Prisma.TransactionClient): Connection {
  return {
    query: (sql, values = []) => (sql.startsWith("SELECT") ? tx.$queryRawUnsafe(sql, ...values) : tx.$executeRawUnsafe(sql, ...values)),
  };
}

export async function renameProduct(prisma: PrismaClient, id: bigint, name: string): Promise<void> {
  await prisma.$transaction(async (tx) => {
    await tx.product.update({ where: { id }, data: { name } });
    await enqueue(connectionOf(tx), invalidateProduct(id));
  });
}
