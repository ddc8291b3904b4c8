import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { kill } from "../test/processes.ts";
import type { Library } from "./libraries.ts";
import type { Order, Reply } from "./process.ts";

/** A call in another process. */
export interface Call {
  /** Settles when its load pauses. */
  readonly loading: Promise<void>;
  readonly value: Promise<string>;
}

/** Another process of an application, which runs process.ts. */
export class Child {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #calls = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("message", (reply: Reply) => this.#waiting.get(reply.id)?.(reply));
    let log = "";
    child.stderr!.on("data", (text) => (log += String(text)));
    child.on("close", () => {
      for (const [id, end] of this.#waiting) end({ id, error: `the process has ended: ${log}` });
    });
  }

  static async start(library: Library, port: number, socketPath = ""): Promise<Child> {
    const child = fork(fileURLToPath(new URL("process.ts", import.meta.url)), [library.name, String(port), socketPath], {
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    const started = new Child(child);
    const [first] = (await Promise.race([once(child, "message"), once(child, "exit")])) as [Reply | number];
    if (typeof first === "number") throw new Error(`a process of ${library.name} ended with code ${first}`);
    return started;
  }

  begin(order: Order): Call {
    const id = ++this.#calls;
    const loading = Promise.withResolvers<void>();
    const value = Promise.withResolvers<string>();
    this.#waiting.set(id, (reply) => {
      if (reply.loading) return loading.resolve();
      this.#waiting.delete(id);
      if (reply.error === undefined) return value.resolve(reply.value!);
      const error = new Error(`${order.type}: ${reply.error}`);
      loading.reject(error);
      value.reject(error);
    });
    for (const promise of [loading.promise, value.promise]) promise.catch(() => undefined); // whoever waits gets it too
    if (this.#child.connected) this.#child.send({ id, ...order });
    else this.#waiting.get(id)!({ id, error: "the process has ended" });
    return { loading: loading.promise, value: value.promise };
  }

  run(order: Order): Promise<string> {
    return this.begin(order).value;
  }

  kill(): Promise<void> {
    return kill(this.#child);
  }
}
