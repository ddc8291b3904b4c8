import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createConnection } from "mysql2/promise";
import { kill, unstale } from "./processes.ts";

/** A MySQL server of a test, with the account root, which has no password. */
export interface MySQL {
  readonly socketPath: string;
  /** Creates a database with the tables of the outbox. */
  database(name: string): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts the mysqld on PATH, which scripts/test-clients sets, without a port. It ends with this
 * process.
 */
export async function startMySQL(...options: string[]): Promise<MySQL> {
  const folder = mkdtempSync(join(tmpdir(), "unstale-mysql-"));
  const socketPath = join(folder, "socket");
  const common = ["--no-defaults", `--datadir=${folder}/data`, `--user=${userInfo().username}`, "--skip-log-bin", "--secure-file-priv=NULL", "--innodb-flush-method=nosync"];
  const run = (...args: string[]) => spawn("setpriv", ["--pdeathsig", "KILL", "mysqld", ...common, ...args], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const init = run("--initialize-insecure", "--innodb-redo-log-capacity=8M");
  init.stderr.on("data", (text) => (log += text));
  const [code] = (await once(init, "close")) as [number];
  if (code !== 0) throw new Error(`mysqld --initialize-insecure: ${log}`);

  const server = run("--skip-networking", `--socket=${socketPath}`, "--mysqlx=OFF", `--tmpdir=${folder}`, `--pid-file=${folder}/pid`, ...options);
  let ready = false;
  for await (const line of createInterface(server.stderr)) {
    log += `${line}\n`;
    ready = line.includes("ready for connections");
    if (ready) break;
  }
  if (!ready) throw new Error(`mysqld: ${log}`);
  server.stderr.resume();
  return {
    socketPath,
    async database(name) {
      const connection = await createConnection({ socketPath, user: "root" });
      await connection.query(`CREATE DATABASE ${name}`);
      await connection.end();
      execFileSync(unstale, ["migrate", "up", "--mysql-dsn", `root@unix(${socketPath})/${name}`], { stdio: ["ignore", "ignore", "inherit"] });
    },
    async stop() {
      await kill(server);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
