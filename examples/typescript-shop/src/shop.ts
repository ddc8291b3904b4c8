import { Module } from "@nestjs/common";
import { ioredis } from "@unstale/client";
import { UnstaleModule } from "@unstale/client/nest";
import { Redis } from "ioredis";
import { CachedPages, PlainPages } from "./pages.js";
import { Prices } from "./prices.js";
import { Servers } from "./servers.js";

@Module({
  imports: [
    Servers,
    UnstaleModule.forRootAsync({ inject: [Redis], useFactory: (redis: Redis) => ({ redis: ioredis(redis) }) }),
  ],
  providers: [Prices, CachedPages, PlainPages],
})
export class Shop {}
