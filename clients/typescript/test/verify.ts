// The driver of this client for `unstale-lab verify --client` and `unstale-lab conform`, whose lines
// lab/conform/README.md describes: node verify.ts [ioredis|redis]. UNSTALE_PLANT names a bug to have.
import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Cluster, Redis } from "ioredis";
import { createPool } from "mysql2/promise";
import { createClient, createCluster } from "redis";
import { Cache, ioredis, nodeRedis, readOf, type Connector, type Link } from "@unstale/client";

interface Line {
  type: string;
  id: number;
  version: number;
  redis: string;
  cluster?: boolean;
  mysql?: string;
  source?: string;
  lease: number;
  ttl?: number;
  stale?: number;
  timeout: number;
  keys: string[];
  tags?: string[];
  token?: string;
  values?: Record<string, string>;
  error?: string;
}
type Command = Parameters<Link["send"]>[0][number];

const tell = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Returns connections to a server, or to the Cluster of a node. */
function connector(url: string, cluster: boolean, library: string): Connector {
  if (library === "redis") return nodeRedis(cluster ? createCluster({ rootNodes: [{ url }] }) : createClient({ url }));
  return ioredis(cluster ? new Cluster([url], { lazyConnect: true }) : new Redis(url, { lazyConnect: true }));
}

const text = (name: string) => readFileSync(new URL(`../../../protocol/scripts/${name}.lua`, import.meta.url), "utf8");
const scripts = new Map(["lease", "fill", "release"].flatMap((name) => [[text(name), name], [createHash("sha1").update(text(name)).digest("hex"), name]]));

/** Returns a copy of a command with another argument. */
const changed = (command: Command, at: number, to: string): Command => command.map((argument, i) => (i === at ? to : argument));

/** What a bug makes of a command that runs a script: its keys begin at 3, a fill has its entry at 7. */
const bugs: Record<string, (command: Command, script: string, link: Link) => Command | Promise<Command>> = {
  "bare-fill": (command, script) => (script === "fill" ? ["SET", command[5]!, command[7]!, "PX", command[8]!] : command),
  "left-lease": (command) => changed(command, 3, String(command[3]).replace("lock:fill:", "lock:mine:")),
  "old-birth": (command, script) => (script === "fill" ? changed(command, 7, String(command[7]).replace(/"b":(\d+)/, (_, b) => `"b":${Number(b) - 60e6}`)) : command),
  async "late-stamps"(command, script, link) {
    if (script !== "fill") return command;
    const entry = JSON.parse(String(command[7]));
    for (const tag of Object.keys(entry.t ?? {})) {
      const stamp = ["EVAL", text("stamp"), "2", `stamp:${tag}`, `lock:hold:{stamp:${tag}}`, randomUUID(), "3600000"];
      entry.t[tag] = String(await new Promise((resolve) => link.send([stamp], ([version]) => resolve(version))));
    }
    return changed(command, 7, JSON.stringify(entry));
  },
};

/** Returns connections with a bug. */
function planted(inner: Connector, bug: NonNullable<(typeof bugs)[string]>): Connector {
  return {
    cluster: inner.cluster,
    async open(timeout, ended) {
      const link = await inner.open(timeout, ended);
      return {
        close: () => link.close(),
        send(commands, done) {
          const change = async (command: Command) => {
            const script = scripts.get(String(command[1]));
            return script === undefined ? command : bug(command, script, link);
          };
          void Promise.all(commands.map(change)).then((sent) => {
            link.send(sent, (replies) => done(replies.map((reply, i) => (sent[i]![0] === "SET" && String(reply) === "OK" ? 1 : reply))));
          });
        },
      };
    },
  };
}

const [library = "ioredis"] = process.argv.slice(2);
const plant = process.env.UNSTALE_PLANT ?? "";
if (plant !== "" && plant !== "old-snapshot" && !bugs[plant]) throw new Error(`there is no bug ${plant}`);
let cache: Cache;
let hello: Line;
let pool: ReturnType<typeof createPool> | undefined;
let loads = 0;
const waiting = new Map<number, (line: Line) => void>();
const snapshot = new Map<string, { value: string | undefined; at: number }>();

/** Loads keys. The bug old-snapshot returns what a transaction of up to three seconds ago would read. */
async function load(keys: string[]): Promise<Record<string, string>> {
  const id = ++loads;
  const came = new Promise<Line>((resolve) => waiting.set(id, resolve));
  tell({ type: "load", id, keys });
  const { values = {}, error } = await came;
  if (error !== undefined) throw new Error(error);
  if (plant !== "old-snapshot") return values;
  for (const key of keys) {
    const old = snapshot.get(key);
    if (old && performance.now() - old.at < 3000) values[key] = old.value!;
    else snapshot.set(key, { value: values[key], at: performance.now() });
  }
  return values;
}

const readOfLine = ({ ttl = hello.ttl!, stale = 0, tags = [] }: Line, key: string) => readOf<string | undefined>(key, { ttl, stale, tags });

const answers: Record<string, (line: Line) => Promise<object> | object | void> = {
  hello(line) {
    hello = line;
    const redis = connector(line.redis, line.cluster === true, library);
    if (line.mysql) pool = createPool({ uri: line.mysql, connectionLimit: 8 });
    cache = new Cache({
      redis: bugs[plant] ? planted(redis, bugs[plant]) : redis,
      source: line.source,
      lease: line.lease,
      timeout: line.timeout,
      primary: pool,
      logger: { warn: () => undefined },
    });
    return { type: "ready", version: 1, name: `@unstale/client with ${library}`, many: true, cluster: true, tokens: pool !== undefined };
  },
  async fetch(line) {
    const key = line.keys[0]!;
    const { value, source, stale } = await cache.fetchResult(readOfLine(line, key), async () => (await load([key]))[key], { token: line.token });
    return { values: value === undefined ? {} : { [key]: value }, from: stale ? "stale" : source === "redis" ? "redis" : "load" };
  },
  async fetchMany(line) {
    const reads = line.keys.map((key) => readOfLine(line, key));
    const values = await cache.fetchMany(reads, async (missing) => new Map(Object.entries(await load(missing.map(({ key }) => key)))));
    return { values: Object.fromEntries(values) };
  },
  loaded(line) {
    waiting.get(line.id)!(line);
    waiting.delete(line.id);
  },
  stats() {
    const { refused, unsettled } = cache.stats();
    return { type: "stats", refused, unsettled };
  },
  close: () => process.exit(0),
};

for await (const json of createInterface(process.stdin)) {
  const line = JSON.parse(json) as Line;
  const { type, id } = line;
  void (async () => {
    try {
      const answer = await answers[type]!(line);
      if (answer) tell({ type: "result", id, ...answer });
    } catch (error) {
      if (type !== "fetch" && type !== "fetchMany") throw error;
      tell({ type: "result", id, error: String(error) });
    }
  })();
}
process.exit(0);
