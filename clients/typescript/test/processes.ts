// Programs that tests and benchmarks start. Those of scripts/test-clients are on PATH.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";

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
