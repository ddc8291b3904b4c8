import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
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
