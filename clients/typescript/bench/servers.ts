import type { ChildProcess } from "node:child_process";
import { tmpdir } from "node:os";
import { freePort, kill, startRedis } from "../test/processes.ts";

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
