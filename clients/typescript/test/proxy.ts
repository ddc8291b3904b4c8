import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A proxy in front of a server, which a test or a benchmark can cut. */
export class Proxy {
  /**
   * Decides about what a client sends: it is forwarded, or the connection ends, before the server gets
   * it, which `deliver` does, or after the server has run it.
   */
  rule: (request: string) => "forward" | "cut before" | "cut after" = () => "forward";
  readonly #kept: Buffer[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((client) => this.#serve(client));

  /** The port to which new connections lead. */
  target: number;

  port = 0;

  private constructor(target: number) {
    this.target = target;
  }

  static async open(target: number): Promise<Proxy> {
    const proxy = new Proxy(target);
    await proxy.listen();
    return proxy;
  }

  /** Lets connections through, after the first time at the same port. */
  async listen(): Promise<void> {
    this.#server.listen(this.port, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = (this.#server.address() as AddressInfo).port;
  }

  /** Ends all connections, and refuses others. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    this.cut();
    await closed;
  }

  /** Ends all connections of clients. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Sends the server what it has not got, and waits until it has run it. */
  async deliver(): Promise<void> {
    const socket = connect(this.target, "127.0.0.1");
    socket.end(Buffer.concat(this.#kept.splice(0)));
    socket.resume();
    await once(socket, "close");
  }

  #serve(client: Socket): void {
    const server = connect(this.target, "127.0.0.1");
    let cut = false;
    this.#sockets.add(client);
    client.on("data", (data: Buffer) => {
      const rule = this.rule(data.toString("latin1"));
      cut ||= rule === "cut after";
      if (rule !== "cut before") return void server.write(data);
      this.#kept.push(data);
      client.destroy();
    });
    server.on("data", (data) => void (cut ? client.destroy() : client.write(data)));
    for (const socket of [client, server]) socket.setNoDelay().on("error", () => undefined);
    client.on("close", () => {
      this.#sockets.delete(client);
      server.end(); // after what it has got
    });
    server.on("close", () => client.destroy());
  }
}
