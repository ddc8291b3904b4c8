// One process of an application: it does what races.ts and bench.ts tell it, which have started it
// with the name of a library, the port of Redis, and the socket of MySQL.
import { inTransaction } from "@unstale/client";
import { createPool, type RowDataPacket } from "mysql2/promise";
import { libraries, type Loader } from "./libraries.ts";

/** What a process is told. */
export type Order =
  | { type: "get"; key: string; row: string; pauses: boolean }
  | { type: "crowd"; key: string; callers: number }
  | { type: "write"; row: string; value: string }
  | { type: "delete"; key: string }
  | { type: "rest" }
  | { type: "probe"; key: string }
  | { type: "continue" };

/** What it answers: `loading` before the reply to a get whose load pauses, and to a crowd. */
export interface Reply {
  readonly id: number;
  readonly loading?: true;
  readonly value?: string;
  readonly error?: string;
}

const roundTrips = 30; // more than any library makes for a call

const [name, port, socketPath] = process.argv.slice(2);
const library = libraries.find((one) => one.name === name)!;
const cache = await library.open(Number(port));
const pool = socketPath ? createPool({ socketPath, user: "root", database: "raced" }) : undefined;
let go = Promise.withResolvers<void>();

const load = (row: string): Loader => async () => {
  const [rows] = await pool!.query<RowDataPacket[]>("SELECT value FROM raced WHERE id = ?", [row]);
  return rows[0]!["value"] as string;
};

/** Returns when calls wait for nothing but a load: replies come in the order of commands. */
async function rest(): Promise<void> {
  for (let i = 0; i < roundTrips; i++) {
    await cache.ping();
    await new Promise(setImmediate);
  }
}

async function obey(order: Order, loading: () => void): Promise<unknown> {
  switch (order.type) {
    case "get": {
      const paused: Loader = async () => {
        const value = await load(order.row)();
        loading();
        await go.promise;
        return value;
      };
      return cache.get(order.key, order.pauses ? paused : load(order.row));
    }
    case "crowd": {
      let loads = 0;
      const counting: Loader = async () => {
        loads++;
        await go.promise;
        return "value";
      };
      const calls = Array.from({ length: order.callers }, () => cache.get(order.key, counting));
      await rest();
      loading();
      await Promise.all(calls);
      return loads;
    }
    case "write": {
      const { token } = await inTransaction(pool!, async (tx) => {
        await tx.connection.query("REPLACE INTO raced (id, value) VALUES (?, ?)", [order.row, order.value]);
        if (library.ours) await tx.enqueue({ entity: "value", id: order.row });
      });
      return token;
    }
    case "delete":
      return cache.delete(order.key);
    case "rest":
      return rest();
    case "probe":
      return cache.get(order.key, async () => "probe");
    case "continue":
      go.resolve();
      go = Promise.withResolvers<void>();
      return undefined;
  }
}

process.on("message", ({ id, ...order }: Order & { id: number }) => {
  const reply = (more: Omit<Reply, "id">) => process.send!({ id, ...more });
  obey(order, () => reply({ loading: true })).then(
    (value) => reply({ value: String(value) }),
    (error: unknown) => reply({ error: String(error) }),
  );
});
process.on("disconnect", () => process.exit(0));
process.send!({ id: 0 });
