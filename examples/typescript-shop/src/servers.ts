import { Global, Module, type OnApplicationShutdown } from "@nestjs/common";
import { ModuleRef } from "@nestjs/core";
import { Redis } from "ioredis";
import { createPool, type Pool } from "mysql2/promise";

/** The token of the pool, which mysql2 exports as a type only. */
export const MYSQL = Symbol("mysql");

/** Provides the connections of the shop, from MYSQL_SOCKET and REDIS_URL, to all modules. */
@Global()
@Module({
  providers: [
    { provide: Redis, useFactory: () => new Redis(process.env.REDIS_URL!) },
    { provide: MYSQL, useFactory: () => createPool({ socketPath: process.env.MYSQL_SOCKET!, user: "root", database: "shop", connectionLimit: 20 }) },
  ],
  exports: [Redis, MYSQL],
})
export class Servers implements OnApplicationShutdown {
  constructor(private readonly module: ModuleRef) {}

  async onApplicationShutdown(): Promise<void> {
    this.module.get(Redis).disconnect();
    await this.module.get<Pool>(MYSQL).end();
  }
}
