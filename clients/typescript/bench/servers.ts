import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort, kill, start, startRedis } from "../test/processes.ts";

const unstale = fileURLToPath(new URL("../../../bin/unstale", import.meta.url));

/** A Redis server that stores nothing on disk. */
export class RedisServer {
  readonly port: number;
  #child: ChildProcess | undefined;

  private constructor(port: number) {
    this.port = port;
  }

  static async start(): Promise<RedisServer> {
    const server = new RedisServer(await freePort());
    await server.#start();
    return server;
  }

  async #start(): Promise<void> {
    this.#child = await startRedis("--port", String(this.port), "--bind", "127.0.0.1", "--save", "", "--dir", tmpdir());
  }

  /** Kills the server, and starts it without data. */
  async restart(): Promise<void> {
    await this.stop();
    await this.#start();
  }

  async stop(): Promise<void> {
    await kill(this.#child!);
  }
}

/** Starts a worker for the map `text`, and returns a function that ends it. */
export function startWorker(socketPath: string, database: string, redis: RedisServer, text: string): () => Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "unstale-worker-"));
  const map = join(folder, "mapping.yaml");
  writeFileSync(map, text);
  const dsn = `root@unix(${socketPath})/${database}`;
  const child = start(unstale, "run", "--listen", "-", "--log-level", "error", "--map", map, "--mysql-dsn", dsn, "--redis-url", `redis://127.0.0.1:${redis.port}/0`);
  child.stdout.resume();
  return async () => {
    await kill(child);
    rmSync(folder, { recursive: true, force: true });
  };
}

/** A way to a port that can be cut. */
export class Link {
  readonly #target: number;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((from) => this.#join(from));
  port = 0;

  private constructor(target: number) {
    this.#target = target;
  }

  static async to(target: number): Promise<Link> {
    const link = new Link(target);
    await link.open();
    return link;
  }

  /** Lets connections through, after the first time at the same port. */
  async open(): Promise<void> {
    this.#server.listen(this.port, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = (this.#server.address() as AddressInfo).port;
  }

  /** Ends all connections, and refuses others. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #join(from: Socket): void {
    const to = connect(this.#target, "127.0.0.1");
    for (const [socket, other] of [[from, to], [to, from]] as const) {
      this.#sockets.add(socket.setNoDelay());
      socket.on("error", () => other.destroy());
      socket.on("close", () => (this.#sockets.delete(socket), other.destroy()));
      socket.pipe(other);
    }
  }
}
