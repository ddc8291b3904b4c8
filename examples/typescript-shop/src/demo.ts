// Changes prices while others read them: first with plain GET and SET, then with the client. Both have
// the same writer, the same worker and the same readers. It then counts old prices: those that a read
// returns although the worker has processed all changes before it began. They stay until their TTL ends.
import "reflect-metadata";
import { NestFactory } from "@nestjs/core";
import { Redis } from "ioredis";
import type { Pool, RowDataPacket } from "mysql2/promise";
import { CachedPages, PlainPages } from "./pages.js";
import { Prices, type Page } from "./prices.js";
import { MYSQL } from "./servers.js";
import { Shop } from "./shop.js";
import { map, productPage } from "./shopcache.js";

const rounds = Number(process.env.ROUNDS || 10);
const changes = 200; // per round
const readers = 16;
const ids = Array.from({ length: 40 }, (_, i) => i + 1);
const pick = () => ids[Math.floor(Math.random() * ids.length)]!;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

map.check(); // the environment names the keys
const app = await NestFactory.createApplicationContext(Shop, { logger: ["error", "warn"], abortOnError: false });
app.enableShutdownHooks();
const prices = app.get(Prices);
const pool = app.get<Pool>(MYSQL);
const redis = app.get(Redis);

interface Pages {
  page(id: number): Promise<Page>;
}

/** Waits until the worker has processed all rows. */
async function processed(): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; await wait(5)) {
    const [rows] = await pool.query<RowDataPacket[]>("SELECT 1 FROM cache_outbox LIMIT 1");
    if (rows.length === 0) return;
  }
  throw new Error("the worker has not processed a change within 30 s");
}

/** Changes prices under readers, and returns the number of old prices and of all reads. */
async function race(pages: Pages): Promise<{ old: number; reads: number }> {
  await redis.unlink(ids.map((id) => productPage(id).key));
  let reads = 0;
  let old = 0;
  let over = false;
  const reading = Array.from({ length: readers }, async () => {
    for (; !over; reads++) await pages.page(pick());
  });
  const failed = Promise.all(reading).then(() => undefined); // rejects with the first reader that fails
  const changing = (async () => {
    let cents = 1000;
    for (let round = 1; round <= rounds; round++) {
      for (let change = 1; change <= changes; change++) await prices.change(pick(), ++cents);
      await processed();
      const current = await Promise.all(ids.map((id) => prices.load(id)));
      const read = await Promise.all(ids.map((id) => pages.page(id)));
      old += read.filter((page, i) => page.cents !== current[i]!.cents).length;
    }
  })();
  try {
    await Promise.race([changing, failed]);
  } finally {
    over = true;
  }
  await failed;
  return { old, reads };
}

await pool.query("CREATE TABLE IF NOT EXISTS products (id INT PRIMARY KEY, price_cents INT NOT NULL)");
await pool.query("CREATE TABLE IF NOT EXISTS product_categories (product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))");
await pool.query("REPLACE INTO products VALUES ?", [ids.map((id) => [id, 1000])]);

const plain = await race(app.get(PlainPages));
const cached = await race(app.get(CachedPages));
await app.close();

const line = (name: string, { old, reads }: { old: number; reads: number }) =>
  console.log(`  ${name.padEnd(18)} ${String(old).padStart(4)} old prices, after ${reads.toLocaleString("en")} reads during the changes`);
console.log(`${rounds * changes} changes of prices each, in ${rounds} rounds. After each round, when the worker had processed all changes,
${ids.length} prices were read again:\n`);
line("plain GET and SET", plain);
line("@unstale/client", cached);
if (cached.old > 0) console.error("\nThe client returned an old price. This is a bug: please report it.");
if (plain.old === 0) console.error("\nThe race did not happen with plain GET and SET. Run it again with ROUNDS=100.");
process.exitCode = cached.old > 0 || plain.old === 0 ? 1 : 0;
