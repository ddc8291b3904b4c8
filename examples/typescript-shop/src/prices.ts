import { Inject, Injectable } from "@nestjs/common";
import { inTransaction } from "@unstale/client";
import type { Pool, RowDataPacket } from "mysql2/promise";
import { MYSQL } from "./servers.js";
import { invalidateProduct } from "./shopcache.js";

/** What a customer sees of a product. */
export interface Page {
  id: number;
  cents: number;
}

/** The prices in MySQL. */
@Injectable()
export class Prices {
  constructor(@Inject(MYSQL) private readonly pool: Pool) {}

  /** Changes a price. The row for the worker commits together with the change, or not at all. */
  async change(id: number, cents: number): Promise<string> {
    const { token } = await inTransaction(this.pool, async (tx) => {
      await tx.connection.query("UPDATE products SET price_cents = ? WHERE id = ?", [cents, id]);
      await tx.enqueue(invalidateProduct(id));
    });
    return token; // of this write, for a cookie: see the README of the client
  }

  /** Loads a page from the primary, and takes up to 100 ms to make it. */
  async load(id: number): Promise<Page> {
    const [rows] = await this.pool.query<RowDataPacket[]>("SELECT price_cents FROM products WHERE id = ?", [id]);
    await new Promise((made) => setTimeout(made, Math.random() * 100));
    return { id, cents: rows[0]!.price_cents };
  }
}
