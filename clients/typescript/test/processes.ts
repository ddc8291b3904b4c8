// Programs that tests and benchmarks start. Those of scripts/test-clients are on PATH.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const unstale = fileURLToPath(new URL("../../../bin/unstale", import.meta.url));

/** Starts a program that ends with this process. */
export const start = (program: string, ...args: string[]) => spawn("setpriv", ["--pdeathsig", "KILL", program, ...args], { stdio: ["ignore", "pipe", "inherit"] });

/** Kills a program, unless it has ended. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "close");
  child.kill("SIGKILL");
  await ended;
}

/** Starts redis-server, also as a sentinel, and waits until it serves clients. */
export async function startRedis(...args: string[]): Promise<ChildProcess> {
  const child = start("redis-server", ...args);
  let log = "";
  const serves = () => /Ready to accept connections|Sentinel ID is/.test(log);
  for await (const text of child.stdout) {
    log += String(text);
    if (serves()) break; // which closes the pipe
  }
  if (!serves()) throw new Error(`redis-server: ${log}`);
  return child;
}

/** Returns a port that no one has now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Starts a worker for the map `text` and the Redis at `port`, and returns a function that ends it. */
export function startWorker(socketPath: string, database: string, port: number, text: string): () => Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "unstale-worker-"));
  const map = join(folder, "mapping.yaml");
  writeFileSync(map, text);
  const dsn = `root@unix(${socketPath})/${database}`;
  const child = start(unstale, "run", "--listen", "-", "--log-level", "error", "--map", map, "--mysql-dsn", dsn, "--redis-url", `redis://127.0.0.1:${port}/0`);
  child.stdout.resume();
  return async () => {
    await kill(child);
    rmSync(folder, { recursive: true, force: true });
  };
}
