// The races of docs/cache.md: a load has read the old row, the row changes, and the worker processes
// its invalidation before the load ends. MySQL, Redis and the worker are real.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { createPool, type Pool, type RowDataPacket } from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { inTransaction, readOf, type Cache, type Read } from "../src/index.js";
import { startMySQL, type MySQL } from "./mysql.js";
import { startWorker } from "./processes.ts";
import { Proxy } from "./proxy.ts";
import { RedisServer, cacheOf, connector, eventually, libraries, signal, type Library } from "./redis.js";

const map = `version: 1
lease: 20s
entities:
  exact: {keys: ["raced:{id}"]}
  tagged: {tags: ["raced-{id}"]}
  swept: {patterns: ["raced:{id}:*"]}
  indexed: {sets: ["raced:of:{id}"]}
  held: {keys: ["raced:{id}"], hold: 1h}
`;

let mysql: MySQL;
let pool: Pool;
let server: RedisServer; // the master
let way: Proxy; // to it, for readers and the worker
const masters: RedisServer[] = [];
let stopWorker: () => Promise<void>;
let rows = 0;

beforeAll(async () => {
  [mysql, server] = await Promise.all([startMySQL(), RedisServer.start()]);
  masters.push(server);
  await mysql.database("raced");
  pool = createPool({ socketPath: mysql.socketPath, user: "root", database: "raced" });
  await pool.query("CREATE TABLE raced (id INT PRIMARY KEY, value VARCHAR(8) NOT NULL)");
  way = await Proxy.open(server.port);
  stopWorker = startWorker(mysql.socketPath, "raced", way.port, map);
});

afterAll(async () => {
  await stopWorker();
  await way.close();
  await pool.end();
  await Promise.all([mysql, ...masters].map((started) => started.stop()));
});

/** A row, a reader whose load has read it, and what a change does. */
class Race {
  readonly id = String(++rows);
  readonly read: Read<string>;
  readonly cache: Cache;
  readonly #library: Library;
  early!: Promise<string>;
  #release!: () => void;

  constructor(library: Library, key: string, tags: readonly string[]) {
    this.#library = library;
    this.read = readOf<string>(key.replace("ID", this.id), { ttl: 60_000, tags: tags.map((tag) => tag.replace("ID", this.id)) });
    this.cache = this.reader();
  }

  reader = () => cacheOf(connector(this.#library, way.port), { lease: 20_000 });

  readonly load = async (): Promise<string> => {
    const [[row]] = await pool.query<(RowDataPacket & { value: string })[]>("SELECT value FROM raced WHERE id = ?", [this.id]);
    return row!.value;
  };

  /** Begins a load that continues with `finish`. */
  async begin(): Promise<void> {
    await pool.query("INSERT INTO raced VALUES (?, 'old')", [this.id]);
    const [loaded, released] = [signal(), signal()];
    this.#release = released.resolve;
    this.early = this.cache.fetch(this.read, async () => {
      const value = await this.load();
      loaded.resolve();
      await released.promise;
      return value;
    });
    await loaded.promise;
  }

  async finish(): Promise<void> {
    this.#release();
    expect(await this.early).toBe("old"); // this caller came before the change
  }

  /** Changes the row, and waits until the worker has deleted `name`. */
  async change(entity: string, name: string): Promise<void> {
    await inTransaction(pool, async (tx) => {
      await tx.connection.query("UPDATE raced SET value = 'new' WHERE id = ?", [this.id]);
      await tx.enqueue({ entity, id: this.id });
    });
    await eventually(`${name} is gone`, async () => (await server.admin.exists(name)) === 0);
  }

  get lease(): string {
    return `lock:fill:{${this.read.key}}`;
  }
}

interface Case {
  readonly name: string;
  readonly key?: string;
  readonly tags?: string[];
  readonly between: (race: Race) => Promise<void>;
  /** A tombstone keeps the value out of Redis. */
  readonly held?: boolean;
  /** Redis may have lost UNLINKs: the worker repeats them, at some time. */
  readonly lost?: boolean;
}

const races: Case[] = [
  { name: "the worker unlinks the key", between: (race) => race.change("exact", race.lease) },
  { name: "the worker unlinks a tag", tags: ["other", "raced-ID"], between: (race) => race.change("tagged", `stamp:raced-${race.id}`) },
  { name: "the worker sweeps a pattern", key: "raced:ID:page", between: (race) => race.change("swept", race.lease) },
  {
    name: "the worker sweeps an index set",
    key: "page:ID",
    between: async (race) => {
      await server.admin.sadd(`raced:of:${race.id}`, race.read.key);
      await race.change("indexed", race.lease);
    },
  },
  {
    name: "the worker sets a tombstone, and a second load reads from a replica that lags",
    held: true,
    between: async (race) => {
      await race.change("held", race.lease);
      expect(await race.reader().fetch(race.read, () => "old")).toBe("old");
    },
  },
  {
    name: "the lease expires, and another reader takes it",
    between: async (race) => {
      await server.admin.pexpire(race.lease, 1); // as if the load took longer
      await eventually("the lease has expired", async () => (await server.admin.exists(race.lease)) === 0);
      await race.change("exact", race.lease);
      const other = race.reader();
      expect(await other.fetch(race.read, race.load)).toBe("new");
    },
  },
  {
    name: "Redis restarts empty",
    lost: true,
    between: async (race) => {
      rmSync(join(server.folder, "dump.rdb"), { force: true });
      await server.kill();
      await server.start();
      await race.change("exact", race.lease);
    },
  },
  {
    name: "Redis restarts with an old snapshot that has the lease",
    lost: true,
    between: async (race) => {
      await eventually("Redis has a beacon", async () => (await server.admin.keys("unstale:beacon:*")).length > 0);
      await server.admin.save();
      await race.change("exact", race.lease);
      await server.kill();
      await server.start();
      await eventually("Redis has loaded the snapshot", async () => (await server.admin.ping()) === "PONG");
    },
  },
  {
    name: "a replica without the UNLINK becomes the master",
    lost: true,
    between: async (race) => {
      await server.admin.config("SET", "repl-diskless-sync-delay", "0");
      const replica = await RedisServer.start();
      await replica.admin.replicaof("127.0.0.1", server.port);
      await eventually("the replica has the lease", async () => (await replica.admin.exists(race.lease)) === 1);
      await eventually("the replica has a beacon", async () => (await replica.admin.keys("unstale:beacon:*")).length > 0);
      await replica.admin.replicaof("NO", "ONE"); // from here on it gets nothing
      await race.change("exact", race.lease);
      await server.kill();
      [server, way.target] = [replica, replica.port];
      masters.push(replica);
      way.cut();
    },
  },
];

test.each(libraries.flatMap((library) => races.map((race) => ({ library, ...race }))))("$library: $name", async ({ library, key, tags, between, held, lost }) => {
  const race = new Race(library, key ?? "raced:ID", tags ?? []);
  await race.begin();
  await between(race);
  await race.finish();
  const later = race.reader();
  let old = lost; // until the worker has repeated its UNLINKs
  await eventually(held ? "no value is stored" : "the new value is stored", async () => {
    const { value, source } = await later.fetchResult(race.read, race.load);
    if (value === "new") old = false;
    else expect(old, `${source} has the value ${value}`).toBe(true);
    return value === "new" && source === (held ? "loader" : "redis");
  });
});
