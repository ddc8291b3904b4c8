// Makes a read and a write race, with this client and with other libraries that cache in Redis, on a
// MySQL, a Redis and a worker of its own. Each reader and writer is a process of its own. Exit code 1
// if this client returned or stored an old value.
import { Redis } from "ioredis6";
import { createPool, type Pool } from "mysql2/promise";
import { parseToken, settled } from "@unstale/client";
import { parseArgs } from "node:util";
import { startMySQL } from "../test/mysql.ts";
import { startWorker } from "../test/processes.ts";
import { Proxy } from "../test/proxy.ts";
import { Child } from "./child.ts";
import { libraries, title, type Library } from "./libraries.ts";
import { RedisServer } from "./servers.ts";

const help = `node races.ts [--only NAME] [--json]

Makes a read and a write race, and prints who returns or stores the old value:

  a load  a load has read the old row. The new row is committed, another process deletes the key, or
          the worker unlinks it, and the load continues. Or Redis is killed meanwhile and comes back empty.
  memory  another process deletes a value that a process has in memory. Or its connections are cut
          meanwhile, or Redis comes back empty.
  died    the application dies between commit and deletion.

  new     no caller after the deletion got the old value, and it is stored nowhere
  joined  Redis has the new value, but a later caller got the result of an earlier load
  old     the old value stays until its TTL ends

  --only  those libraries whose name contains it
  --json  print what each race found

Exit code 1 if @unstale/client has anything but new.
`;

type Verdict = "new" | "joined" | "old";

/** How long a process may return an old value from its memory before it counts as not notified, in ms. */
const heardWithin = 5000;
/** How long one race may take, in ms. */
const patience = 60_000;

const map = `version: 1
entities:
  value: {keys: ["raced:{id}"]}
`;

/** The servers that all races share. */
interface Site {
  readonly redis: RedisServer;
  readonly admin: Redis;
  readonly pool: Pool;
  readonly socketPath: string;
}

let rows = 0;

/** One library in one race. */
class Trial {
  readonly #site: Site;
  readonly #library: Library;
  readonly #row = String(++rows);
  readonly #key = `raced:${this.#row}`;
  readonly #children: Child[] = [];
  readonly #end = Date.now() + patience;
  #probes = 0;

  constructor(site: Site, library: Library) {
    this.#site = site;
    this.#library = library;
  }

  async run(race: (trial: Trial) => Promise<Verdict>): Promise<Verdict> {
    try {
      await this.#site.pool.query("INSERT INTO raced (id, value) VALUES (?, 'old')", [this.#row]);
      return await race(this);
    } finally {
      for (const child of this.#children) await child.kill();
    }
  }

  /** Pauses a load that has read the old row, lets something happen, and looks who gets what. */
  async inFlight(between: () => Promise<void>): Promise<Verdict> {
    const same = await this.#start();
    const other = await this.#start();
    const early = same.begin({ type: "get", key: this.#key, row: this.#row, pauses: true });
    await early.loading;
    await between();
    const late: Promise<string>[] = [];
    for (const child of [same, other]) {
      late.push(this.#get(child));
      await child.run({ type: "rest" });
    }
    await same.run({ type: "continue" });
    await early.value;
    const values = await Promise.all(late);
    for (const child of [same, other]) await child.run({ type: "rest" });
    const left = await this.#left([same, other]);
    return left === "new" && values.includes("old") ? "joined" : left;
  }

  /** Lets something happen while a process has the old value in memory. */
  async inMemory(between: (link: Proxy) => Promise<void>): Promise<Verdict> {
    const link = await Proxy.open(this.#site.redis.port);
    try {
      const child = await this.#start(link.port);
      for (let i = 0; i < 2; i++) {
        await this.#get(child);
        await child.run({ type: "rest" });
      }
      if (this.#library.bus) await this.#until(async () => ((await this.#site.admin.pubsub("CHANNELS")) as string[]).length > 0);
      await between(link);
      const end = performance.now() + heardWithin;
      let value: string;
      do value = await this.#get(child);
      while (value === "old" && performance.now() < end);
      return value === "new" ? "new" : "old";
    } finally {
      await link.close();
    }
  }

  /** Lets a writer die after its commit, with the old value in Redis. */
  async died(): Promise<Verdict> {
    const reader = await this.#start();
    await this.#get(reader);
    await reader.run({ type: "rest" });
    await this.#write(false);
    return this.#left([await this.#start()]);
  }

  invalidate = () => this.#write(true);

  /** Gives Redis back empty, and invalidates. */
  restart = async () => {
    await this.#site.redis.restart();
    for (const child of this.#children) await this.#connected(child);
    await this.#write(true);
  };

  /** Invalidates while the connections of the first process are cut. */
  cut = async (link: Proxy) => {
    await link.close();
    await this.#write(true);
    await link.listen();
    await this.#connected(this.#children[0]!);
  };

  async #start(port = this.#site.redis.port): Promise<Child> {
    const child = await Child.start(this.#library, port, this.#site.socketPath);
    this.#children.push(child);
    return child;
  }

  #get(child: Child): Promise<string> {
    return child.run({ type: "get", key: this.#key, row: this.#row, pauses: false });
  }

  /** Commits the new value in another process, which then deletes the key, or dies. */
  async #write(deletes: boolean): Promise<void> {
    const writer = await this.#start();
    const token = await writer.run({ type: "write", row: this.#row, value: "new" });
    if (deletes && !this.#library.ours) await writer.run({ type: "delete", key: this.#key });
    await writer.kill();
    this.#children.pop();
    if (this.#library.ours) await this.#until(async () => (await settled(this.#site.pool, parseToken(token))).settled);
  }

  /** Returns when a process reaches Redis again: it stores a value there. */
  async #connected(child: Child): Promise<void> {
    await this.#until(async () => {
      const key = `probe:${this.#row}:${++this.#probes}`;
      await child.run({ type: "probe", key }).catch(() => undefined);
      return (await this.#stored(key)).length > 0;
    });
  }

  /** Asks again and again, until the answer is yes. */
  async #until(ask: () => Promise<boolean>): Promise<void> {
    while (!(await ask())) if (Date.now() > this.#end) throw new Error(`it took more than ${patience} ms`);
  }

  /** Reports whether the old value is left in Redis, or reaches anyone. */
  async #left(readers: readonly Child[]): Promise<Verdict> {
    const stored = await this.#stored(this.#key);
    const values = await Promise.all(readers.map((child) => this.#get(child)));
    return [...stored, ...values].some((text) => text.includes("old")) ? "old" : "new";
  }

  /** Returns what Redis has under a key, whatever the library puts before it. */
  async #stored(key: string): Promise<string[]> {
    const { admin } = this.#site;
    const names = (await admin.keys(`*${key}`)).filter((name) => !name.startsWith("lock:"));
    return (await Promise.all(names.map((name) => admin.get(name)))).filter((text) => text !== null);
  }
}

interface Race {
  readonly name: string;
  readonly column: "a load" | "memory" | "died";
  readonly run: (trial: Trial) => Promise<Verdict>;
}

const races: readonly Race[] = [
  { name: "deleted", column: "a load", run: (trial) => trial.inFlight(trial.invalidate) },
  { name: "Redis empty", column: "a load", run: (trial) => trial.inFlight(trial.restart) },
  { name: "memory", column: "memory", run: (trial) => trial.inMemory(trial.invalidate) },
  { name: "memory, cut", column: "memory", run: (trial) => trial.inMemory(trial.cut) },
  { name: "memory, Redis empty", column: "memory", run: (trial) => trial.inMemory(trial.restart) },
  { name: "died", column: "died", run: (trial) => trial.died() },
];

async function openSite(): Promise<[Site, () => Promise<void>]> {
  const redis = await RedisServer.start();
  const mysql = await startMySQL();
  await mysql.database("raced");
  const pool = createPool({ socketPath: mysql.socketPath, user: "root", database: "raced" });
  await pool.query("CREATE TABLE raced (id VARCHAR(64) PRIMARY KEY, value VARCHAR(16) NOT NULL)");
  const stopWorker = startWorker(mysql.socketPath, "raced", redis.port, map);
  const admin = new Redis(redis.port);
  admin.on("error", () => undefined);
  const close = async () => {
    admin.disconnect();
    await pool.end();
    await stopWorker();
    await Promise.all([mysql.stop(), redis.stop()]);
  };
  return [{ redis, admin, pool, socketPath: mysql.socketPath }, close];
}

const { values: options } = parseArgs({ options: { only: { type: "string", default: "" }, json: { type: "boolean" }, help: { type: "boolean" } } });
if (options.help) {
  process.stdout.write(help);
  process.exit(0);
}
const chosen = libraries.filter(({ name }) => name.includes(options.only));
const [site, close] = await openSite();
const found: { library: string; race: string; column: Race["column"]; verdict: Verdict }[] = [];
try {
  for (const library of chosen) {
    console.error(`${title(library)} ...`);
    for (const { name, column, run } of races) {
      if (column === "memory" && !library.memory) continue;
      found.push({ library: title(library), race: name, column, verdict: await new Trial(site, library).run(run) });
    }
  }
} finally {
  await close();
}

/** Returns the worst of a column, and in which races if not in all. */
function cell(library: Library, column: Race["column"]): string {
  const all = found.filter((one) => one.library === title(library) && one.column === column);
  const worst = (["old", "joined", "new"] as const).find((verdict) => all.some((one) => one.verdict === verdict));
  if (worst === undefined) return "";
  const some = all.filter((one) => one.verdict === worst).map((one) => one.race);
  return some.length === all.length ? worst : `${worst} (${some.join("; ")})`;
}

if (options.json) {
  console.log(JSON.stringify(found, undefined, 2));
} else {
  const columns = ["a load", "memory", "died"] as const;
  console.table(Object.fromEntries(chosen.map((library) => [title(library), Object.fromEntries(columns.map((column) => [column, cell(library, column)]))])));
}
const wrong = found.filter(({ library, verdict }) => verdict !== "new" && libraries.some((one) => one.ours && title(one) === library));
for (const { library, race, verdict } of wrong) console.error(`${library}: ${race}: ${verdict}`);
process.exit(wrong.length ? 1 : 0);
