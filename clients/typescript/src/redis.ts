import type { Command } from "./scripts.js";

/** One connection to Redis, or the connections to the masters of a Cluster. */
export interface Link {
  /**
   * Sends commands in this order, in one write; to a Cluster in parallel. `done` is called once, with a
   * reply for each: a number, null, a Buffer, a list of these, or an Error. See `isReply`.
   */
  send(commands: readonly Command[], done: (replies: unknown[]) => void): void;
  /** Ends the connection, and with it the commands under way. */
  close(): void;
}

/** Where a `Cache` gets its own connections from: see `ioredis` and `nodeRedis`. */
export interface Connector {
  readonly cluster: boolean;
  /** Connects within `timeout` ms. `ended` is called when the connection ends, perhaps more than once. */
  open(timeout: number, ended: () => void): Promise<Link>;
}

/** Reports whether a server has answered with an error, and has not run the command. */
export function isReply(error: Error): boolean {
  const redirected = /^(MOVED|ASK|TRYAGAIN) /.test(error.message); // an earlier copy may have run
  return !redirected && !("code" in error) && /^-?[A-Z][A-Z0-9]+( |$)/.test(error.message);
}

const ignore = () => undefined;
export const toError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));

interface Emitter {
  on(event: string, listener: (error: unknown) => void): unknown;
}

/** The latest `error` event of a connection: commands fail with less, such as "Connection is closed." */
class Reason {
  #latest: Error | undefined;

  constructor(link: Emitter) {
    link.on("error", (error) => (this.#latest = toError((error as { lastNodeError?: unknown } | undefined)?.lastNodeError ?? error)));
  }

  /** Waits for a connection. Neither library gives up every attempt by itself. */
  async ready(connecting: Promise<unknown>, timeout: number, close: () => void): Promise<void> {
    const timer = setTimeout(close, timeout);
    try {
      await connecting;
    } catch (error) {
      close();
      throw this.#latest ?? toError(error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Returns the error of a command, with the reason if Redis has not answered. */
  of = (thrown: unknown): Error => {
    const [error, latest] = [toError(thrown), this.#latest];
    if (isReply(error) || latest === undefined || latest === error) return error;
    return new Error(`${error.message.replace(/\.$/, "")}: ${latest.message}`, { cause: latest }); // which is not a reply either
  };
}

function sendEach(commands: readonly Command[], send: (command: Command) => Promise<unknown>, failure: (error: unknown) => Error, done: (replies: unknown[]) => void): void {
  const [first] = commands;
  if (commands.length > 1) void Promise.all(commands.map((command) => send(command).catch(failure))).then(done);
  else send(first!).then((reply) => done([reply]), (error) => done([failure(error)]));
}

/** A client of ioredis 5 or 6, also of a Cluster. */
export interface IORedisClient {
  readonly options: object;
  readonly isCluster?: boolean;
  duplicate(...args: never[]): unknown;
  callBuffer(...args: never[]): unknown;
}

interface IORedis extends Emitter {
  connect(): Promise<void>;
  disconnect(): void;
  callBuffer(...command: Command): Promise<unknown>;
  pipeline(): { callBuffer(...command: Command): unknown; exec(): Promise<[Error | null, unknown][]> };
}

/**
 * Returns connections like that of an ioredis client, version 5 or 6: to one server, through Sentinel,
 * or a Cluster. The client itself is not used, so its settings for retries and its `keyPrefix` do not
 * matter, and it may be closed. Throws a TypeError for another client.
 */
export function ioredis(client: IORedisClient): Connector {
  if (!has(client, "duplicate", "callBuffer")) throw new TypeError("ioredis: this is not a client of ioredis 5 or 6; use nodeRedis for a client of the package redis");
  const cluster = client.isCluster === true;
  const make = client.duplicate.bind(client) as unknown as (...args: unknown[]) => IORedis;
  const never = () => null; // a connection is made once: the next one may lead to another server
  const { sentinels, db, redisOptions } = client.options as { sentinels?: unknown; db?: number; redisOptions?: object };
  const plain = { keyPrefix: "", enableAutoPipelining: false, commandTimeout: undefined, stringNumbers: false };
  const common = { ...plain, lazyConnect: true, enableOfflineQueue: false };
  const server = { ...common, retryStrategy: never, sentinelRetryStrategy: never, reconnectOnError: null, autoResendUnfulfilledCommands: false, readOnly: false };
  const check = sentinels ? {} : { enableReadyCheck: false }; // INFO
  const open = (connectTimeout: number) => {
    if (!cluster) return make({ ...server, ...check, connectTimeout });
    return make([], { ...common, scaleReads: "master", clusterRetryStrategy: never, redisOptions: { ...redisOptions, ...plain, connectTimeout } });
  };
  return {
    cluster,
    async open(connectTimeout, ended) {
      const link = open(connectTimeout);
      const reason = new Reason(link);
      link.on("end", ended);
      const close = () => link.disconnect();
      const connect = async () => {
        await link.connect();
        if (!cluster && db) await link.callBuffer("select", String(db)); // if its own SELECT fails, ioredis uses database 0
      };
      await reason.ready(connect(), connectTimeout, close);
      return {
        close,
        send(commands, done) {
          if (commands.length === 1 || cluster) return sendEach(commands, (command) => link.callBuffer(...command), reason.of, done);
          const pipeline = link.pipeline();
          for (const command of commands) pipeline.callBuffer(...command);
          pipeline.exec().then(
            (replies) => done(replies.map(([error, reply]) => (error ? reason.of(error) : reply))),
            (error) => done(commands.map(() => reason.of(error))),
          );
        },
      };
    },
  };
}

/** A client of node-redis: of `createClient`, `createSentinel` or `createCluster`. */
export interface NodeRedisClient {
  duplicate(...args: never[]): unknown;
  destroy(): unknown;
}

interface NodeRedis extends Emitter {
  connect(): Promise<unknown>;
  destroy(): unknown;
  sendCommand(...args: unknown[]): Promise<unknown>;
}

const asBytes = { typeMapping: { 36: Buffer, 37: Array }, timeout: undefined }; // $: strings; %: maps

/**
 * Returns connections like that of a client of node-redis (the package redis), of `createClient` or
 * `createCluster` from version 5 on, or of `createSentinel` from version 6 on: it throws a TypeError for
 * another one. The client itself is not used, so it need not be connected, and its settings for retries
 * do not matter.
 */
export function nodeRedis(client: NodeRedisClient): Connector {
  if (has(client, "callBuffer")) throw new TypeError("nodeRedis: this is a client of ioredis; use ioredis for it");
  if (!has(client, "duplicate", "destroy")) {
    const fix = has(client, "acquire") ? "createSentinel has one from redis 6 on" : "pass what createClient or createCluster returns, not a pool and not its legacy()";
    throw new TypeError(`nodeRedis: the client has no duplicate; ${fix}`);
  }
  const kind = "getSlotMaster" in client ? "cluster" : "acquire" in client ? "sentinel" : "server";
  const make = client.duplicate.bind(client) as unknown as (options: object) => NodeRedis;
  const { socket } = (client as { options?: { socket?: object } }).options ?? {};
  return {
    cluster: kind === "cluster",
    async open(connectTimeout, ended) {
      const link = make({
        cluster: { useReplicas: false },
        sentinel: { masterPoolSize: 1, replicaPoolSize: 0, reserveClient: true, maxCommandRediscovers: 0 },
        server: { disableOfflineQueue: true, pingInterval: 0, readonly: false, clientSideCache: undefined, socket: { ...socket, connectTimeout, socketTimeout: undefined, reconnectStrategy: false } },
      }[kind]);
      const reason = new Reason(link);
      const close = () => void (async () => link.destroy())().catch(ignore); // which throws if it is closed
      await reason.ready(link.connect(), connectTimeout, close);
      link.on("end", ended);
      if (kind !== "cluster") link.on(kind === "server" ? "error" : "topology-change", ended);
      const send = (command: Command) => {
        if (kind === "server") return link.sendCommand(command, asBytes);
        return kind === "sentinel" ? link.sendCommand(false, command, asBytes) : link.sendCommand(keyOf(command), false, command, asBytes);
      };
      return { close, send: (commands, done) => sendEach(commands, send, reason.of, done) };
    },
  };
}

/** Reports whether an object has these methods. */
const has = (client: unknown, ...methods: string[]) => methods.every((name) => typeof (client as Record<string, unknown> | null | undefined)?.[name] === "function");

/** Returns the key that decides about the node. */
const keyOf = ([name, first, , key]: Command) => (name === "evalsha" || name === "eval" ? key : first);
