// Measures hits of this client and of other libraries beside bare GETs of the clients of Redis that
// they use, and how often a key is loaded that three processes miss at once: see ../README.md.
import { parseArgs } from "node:util";
import { Child } from "./child.ts";
import { clients, libraries, ofPort, openClient, packages, title, versionOf, type Process } from "./libraries.ts";
import { RedisServer } from "./servers.ts";

const help = `node bench.ts [--blocks N] [--calls N] [--json]

Measures hits in Redis, alone and with 64 callers of a key each: the bare GET and JSON.parse of each
client of Redis, this client without tags and with one, and other libraries without a memory. All take
turns in blocks. Prints the median time of a call, its ratio to the bare GET of the same client in the same
round (the median, and between which values the middle half of the rounds is), and the CPU time of
this process.

Then 1,000 calls in three processes miss one key. Prints how often it was loaded. Exit code 1 if this
client loaded it more than once.

  --blocks  of each (25)
  --calls   of a block (1,000)
  --json    print all figures as JSON
`;

const { values: options } = parseArgs({
  options: { blocks: { type: "string", default: "25" }, calls: { type: "string", default: "1000" }, json: { type: "boolean" }, help: { type: "boolean" } },
});
if (options.help) {
  process.stdout.write(help);
  process.exit(0);
}
const [blocks, calls] = (["blocks", "calls"] as const).map((name) => {
  const n = Number(options[name]);
  if (Number.isInteger(n) && n > 0) return n;
  console.error(`--${name} is ${options[name]}, wanted an integer from 1 on`);
  process.exit(2);
}) as [number, number];

const callers = [1, 64] as const;
const crowd = [334, 333, 333]; // callers in each process
/** A key for each caller: some libraries would make one GET of a shared one. */
const keysOf = (name: string) => Array.from({ length: Math.max(...callers) }, (_, i) => `${name}:${i}`);
const value = { id: 42, name: "Coffee, ground, 500 g", cents: 1299 };

/** What is measured. */
interface Subject {
  readonly name: string;
  readonly client: keyof typeof clients;
  readonly bare: boolean;
  readonly call: (caller: number) => Promise<unknown>;
  readonly close: () => unknown;
  /** Of each block, by the number of callers. */
  readonly times: Map<number, Time[]>;
}

/** Microseconds of a call, on the clock and of this process's CPU. */
interface Time {
  readonly us: number;
  readonly cpu: number;
}

function median(numbers: readonly number[], part = 0.5): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const at = (sorted.length - 1) * part;
  const [low, high] = [sorted[Math.floor(at)]!, sorted[Math.ceil(at)]!];
  return low + (high - low) * (at % 1);
}

async function open(port: number): Promise<Subject[]> {
  const subjects: Subject[] = [];
  const add = (subject: Omit<Subject, "times">) => subjects.push({ ...subject, times: new Map(callers.map((n) => [n, []])) });
  const addCache = async (name: string, client: Subject["client"], cache: Process) => {
    const keys = keysOf(`${name}:${client}`);
    for (const key of keys) await cache.get(key, async () => value);
    const unexpected = () => Promise.reject(new Error(`${name}: a hit was expected`));
    add({ name, client, bare: false, call: (caller) => cache.get(keys[caller]!, unexpected), close: () => cache.close() });
  };
  for (const client of Object.keys(clients) as Subject["client"][]) {
    const bare = await clients[client](port);
    const keys = keysOf(`bare:${client}`);
    for (const key of keys) await bare.set(key, JSON.stringify(value));
    const name = `${client.split(" ")[0]} ${versionOf(packages[client])}: GET and JSON.parse`;
    add({ name, client, bare: true, call: async (caller) => JSON.parse((await bare.get(keys[caller]!))!) as unknown, close: () => bare.close() });
    if (client === "ioredis 6" || client === "redis 6") {
      const connector = ofPort[client === "redis 6" ? "redis" : "ioredis"](port);
      await addCache("@unstale/client, no tag", client, openClient(connector));
      await addCache("@unstale/client, one tag", client, openClient(connector, { tags: ["tag"] }));
    }
    for (const library of libraries) {
      if (library.client === client && !library.ours && !library.memory) await addCache(title(library), client, await library.open(port));
    }
  }
  return subjects;
}

/** Makes the calls of a block. */
async function block({ call }: Subject, n: number): Promise<Time> {
  const each = Math.ceil(calls / n);
  const cpu = process.cpuUsage();
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: n }, async (_, caller) => {
      for (let i = 0; i < each; i++) await call(caller);
    }),
  );
  const us = (performance.now() - begun) * 1000;
  const { user, system } = process.cpuUsage(cpu);
  return { us: us / (each * n), cpu: (user + system) / (each * n) };
}

/** Counts the loads of a key that three processes miss at once. */
async function countLoads(port: number): Promise<{ name: string; loads: number; ours: boolean }[]> {
  const counts = [];
  for (const library of libraries) {
    if (library.memory) continue;
    const key = `crowd:${library.name}`;
    const children = await Promise.all(crowd.map(() => Child.start(library, port)));
    const all = children.map((child, i) => child.begin({ type: "crowd", key, callers: crowd[i]! }));
    // the load goes on when the calls of all processes wait
    await Promise.all(all.map(({ loading }) => loading));
    await Promise.all(children.map((child) => child.run({ type: "continue" })));
    const loads = (await Promise.all(all.map(({ value }) => value))).reduce((sum, n) => sum + Number(n), 0);
    for (const child of children) await child.kill();
    counts.push({ name: title(library), loads, ours: library.ours === true });
  }
  return counts;
}

const redis = await RedisServer.start();
const subjects = await open(redis.port);
for (const n of callers) for (const subject of subjects) await block(subject, n); // to warm up
for (let i = 0; i < blocks; i++) {
  for (const n of callers) {
    for (let at = 0; at < subjects.length; at++) {
      const subject = subjects[(at + i) % subjects.length]!;
      subject.times.get(n)!.push(await block(subject, n));
    }
  }
}
const figures = subjects.flatMap((subject) => {
  const bare = subjects.find((one) => one.bare && one.client === subject.client)!;
  return callers.map((n) => {
    const [own, floor] = [subject.times.get(n)!, bare.times.get(n)!];
    const ratios = own.map(({ us }, i) => us / floor[i]!.us);
    return {
      name: subject.name,
      client: subject.client,
      callers: n,
      us: median(own.map(({ us }) => us)),
      ratio: median(ratios),
      low: median(ratios, 0.25),
      high: median(ratios, 0.75),
      cpu: median(own.map(({ cpu }) => cpu)),
      cpuRatio: median(own.map(({ cpu }, i) => cpu / floor[i]!.cpu)),
    };
  });
});
for (const { close } of subjects) await close();
const loads = await countLoads(redis.port);
await redis.stop();

if (options.json) {
  console.log(JSON.stringify({ blocks, calls, figures, loads }, undefined, 2));
} else {
  console.log(`${blocks} blocks of ${calls} hits, microseconds per call`);
  console.table(
    figures.map(({ name, client, callers, us, ratio, low, high, cpu, cpuRatio }) => ({
      name, client, callers, us: us.toFixed(1), ratio: ratio.toFixed(2), spread: `${low.toFixed(2)} to ${high.toFixed(2)}`, cpu: cpu.toFixed(1), "ratio of cpu": cpuRatio.toFixed(2),
    })),
  );
  console.log("1,000 calls in three processes miss a key");
  console.table(loads.map(({ name, loads }) => ({ name, loads })));
}
process.exit(loads.some(({ ours, loads }) => ours && loads !== 1) ? 1 : 0);
