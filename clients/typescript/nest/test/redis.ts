import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";

/** A Redis of a test, behind a Unix socket, and a client. */
export interface Server {
  readonly path: string;
  readonly client: Redis;
  /** The number of clients that are connected. */
  clients(): Promise<number>;
  stop(): Promise<void>;
}

/** Starts the redis-server on PATH: see scripts/test-clients. */
export async function startRedis(): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), "unstale-nest-"));
  const path = join(folder, "redis.sock");
  const server = spawn("redis-server", ["--port", "0", "--unixsocket", path, "--save", "", "--dir", folder], { stdio: "ignore" });
  const ended = once(server, "close");
  const client = new Redis(path, { retryStrategy: () => 10 });
  client.on("error", () => undefined); // until there is a socket
  await client.ping(); // which waits until there is a connection
  return {
    path,
    client,
    clients: async () => String(await client.client("LIST")).trim().split("\n").length,
    async stop() {
      client.disconnect();
      server.kill();
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
