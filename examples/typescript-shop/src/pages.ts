import { Injectable } from "@nestjs/common";
import { Cached } from "@unstale/client/nest";
import { Redis } from "ioredis";
import { Prices, type Page } from "./prices.js";
import { productPage } from "./shopcache.js";

/** Reads pages through the cache, with leases. */
@Injectable()
export class CachedPages {
  constructor(private readonly prices: Prices) {}

  @Cached((id: number) => productPage<Page>(id))
  async page(id: number): Promise<Page> {
    return this.prices.load(id);
  }
}

/** Reads pages as many applications do: GET, and after a miss SET. */
@Injectable()
export class PlainPages {
  constructor(
    private readonly prices: Prices,
    private readonly redis: Redis,
  ) {}

  async page(id: number): Promise<Page> {
    const { key, ttl } = productPage(id);
    const text = await this.redis.get(key);
    if (text !== null) return JSON.parse(text);
    const page = await this.prices.load(id);
    await this.redis.set(key, JSON.stringify(page), "PX", ttl); // the price may have changed meanwhile
    return page;
  }
}
