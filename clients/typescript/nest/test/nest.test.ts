import "reflect-metadata";
import { createRequire } from "node:module";
import { Controller, Get, Injectable, Module, Param, RequestMethod, SetMetadata, type DynamicModule, type Type } from "@nestjs/common";
import { DiscoveryModule, MetadataScanner, NestFactory, Reflector } from "@nestjs/core";
import { PathsExplorer } from "@nestjs/core/router/paths-explorer.js";
import { ioredis, readOf } from "@unstale/client";
import { Cached, UnstaleCache, UnstaleModule } from "@unstale/client/nest";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { startRedis, type Server } from "./redis.js";

interface Page {
  id: number;
  cents: number;
}

const productPage = (id: number) => readOf<Page>(`shop:product:${id}`, { ttl: 60_000 });
const home = () => readOf<string[]>("shop:home", { ttl: 60_000 });

/** What the worker does for a product. */
const invalidate = (redis: Redis, id: number) => redis.unlink(`shop:product:${id}`, `lock:fill:{shop:product:${id}}`);

/** The rows of the database, and how often they were loaded. */
@Injectable()
class Rows {
  cents = 4990;
  loads = 0;
}

@Injectable()
class Products {
  constructor(private readonly rows: Rows) {}

  @Cached((id: number) => productPage(id))
  async page(id: number): Promise<Page> {
    this.rows.loads++;
    if (id < 0) throw new Error(`no product ${id}`);
    return { id, cents: this.rows.cents };
  }

  @Cached(home)
  async home(): Promise<string[]> {
    this.rows.loads++;
    return ["books"];
  }
}

@Injectable()
class MoreProducts extends Products {
  @Cached((id: number) => readOf<number>(`shop:cents:${id}`, { ttl: 60_000 }))
  async cents(id: number): Promise<number> {
    return (await this.page(id)).cents;
  }
}

@Module({ providers: [Rows, Products, MoreProducts] })
class Shop {}

let redis: Server;
let close: (() => Promise<void>)[] = [];
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());
beforeEach(() => redis.client.flushall());
afterEach(async () => {
  for (const one of close) await one();
  close = [];
});

async function application(...imports: (Type | DynamicModule)[]) {
  @Module({ imports })
  class Root {}
  const app = await NestFactory.createApplicationContext(Root, { logger: false, abortOnError: false });
  close.push(() => app.close());
  return app;
}

const forRoot = () => UnstaleModule.forRoot({ redis: ioredis(redis.client) });

describe("UnstaleModule", () => {
  it("provides the cache of an application", async () => {
    const app = await application(forRoot(), Shop);
    const cache = app.get(UnstaleCache);
    expect(await cache.fetch(home(), async () => ["music"])).toEqual(["music"]);
    expect(await app.get(Products).home()).toEqual(["music"]);
  });

  it("takes options from other providers", async () => {
    @Module({ providers: [{ provide: Redis, useValue: redis.client }], exports: [Redis] })
    class Connections {}
    const later = UnstaleModule.forRootAsync({
      imports: [Connections],
      inject: [Redis],
      useFactory: (client: Redis) => ({ redis: ioredis(client) }),
    });
    const app = await application(later, Shop);
    await app.get(Products).page(42);
    expect(await redis.client.exists("shop:product:42")).toBe(1);
  });

  it("is only for modules that import it if isGlobal is false", async () => {
    const here = UnstaleModule.forRoot({ redis: ioredis(redis.client), isGlobal: false });
    await expect(application(here, Shop)).rejects.toThrow(/UnstaleCache/);
  });

  it("gives each application a cache of its own, which is closed with it", async () => {
    const before = await redis.clients();
    const [one, two] = [await application(forRoot(), Shop), await application(forRoot(), Shop)];
    expect(one.get(UnstaleCache)).not.toBe(two.get(UnstaleCache));
    await Promise.all([one.get(Products).home(), two.get(Products).home()]);
    expect(await redis.clients()).toBeGreaterThan(before);
    await one.close();
    await two.close();
    close = [];
    await vi.waitFor(async () => expect(await redis.clients()).toBe(before));
    expect(redis.client.status).toBe("ready");
  });
});

describe("@Cached", () => {
  it("loads once, and again after an invalidation", async () => {
    const app = await application(forRoot(), Shop);
    const [products, rows] = [app.get(Products), app.get(Rows)];
    expect(await products.page(42)).toEqual({ id: 42, cents: 4990 });
    expect(await products.page(42)).toEqual({ id: 42, cents: 4990 });
    expect(await products.page(43)).toEqual({ id: 43, cents: 4990 });
    expect(rows.loads).toBe(2);
    rows.cents = 4490;
    expect(await products.page(42)).toEqual({ id: 42, cents: 4990 });
    await invalidate(redis.client, 42);
    expect(await products.page(42)).toEqual({ id: 42, cents: 4490 });
    expect(rows.loads).toBe(3);
  });

  it("stores nothing if the key is invalidated during the load", async () => {
    const app = await application(forRoot(), Shop);
    const page = app.get(UnstaleCache).fetch(productPage(42), async () => {
      await invalidate(redis.client, 42);
      return { id: 42, cents: 4990 };
    });
    expect(await page).toEqual({ id: 42, cents: 4990 });
    expect(await redis.client.exists("shop:product:42")).toBe(0);
  });

  it("throws what the method throws", async () => {
    const app = await application(forRoot(), Shop);
    await expect(app.get(Products).page(-1)).rejects.toThrow("no product -1");
  });

  it("works in subclasses, and for methods that call each other", async () => {
    const app = await application(forRoot(), Shop);
    expect(await app.get(MoreProducts).cents(42)).toBe(4990);
    expect(await redis.client.exists("shop:product:42", "shop:cents:42")).toBe(2);
  });

  it("refuses an object that NestJS did not make", async () => {
    await expect(async () => new Products(new Rows()).home()).rejects.toThrow("@Cached: home needs an object that NestJS made; its class must be a provider or a controller");
  });

  it("refuses a static method, and a call without the object", async () => {
    const page = async (id: number): Promise<Page> => ({ id, cents: 0 });
    expect(() => Cached(productPage)(Products, "page", { value: page })).toThrow("@Cached: page is static");
    const { home } = (await application(forRoot(), Shop)).get(Products);
    expect(() => home.call(undefined as unknown as Products)).toThrow("@Cached: home was called without its object; call it as a method, or bind it");
  });

  it("keeps what other decorators say of the method, above and below", async () => {
    const Role = Reflector.createDecorator<string>();
    @Controller("products")
    class Pages {
      @Get("above/:id")
      @SetMetadata("cost", 1)
      @Role("buyer")
      @Cached(productPage)
      async above(@Param("id") id: number, _more = 1): Promise<Page> {
        return { id, cents: 1 };
      }

      @Cached(productPage)
      @Role("buyer")
      @SetMetadata("cost", 1)
      @Get("below/:id")
      async below(@Param("id") id: number, _more = 1): Promise<Page> {
        return { id, cents: 2 };
      }
    }
    @Module({ controllers: [Pages], imports: [DiscoveryModule] })
    class Web {}
    const app = await application(forRoot(), Web);
    const [pages, reflector] = [app.get(Pages), app.get(Reflector)];
    const routes = new PathsExplorer(app.get(MetadataScanner)).scanForPaths(pages);
    expect(routes.map(({ path, requestMethod, methodName }) => [path, requestMethod, methodName])).toEqual([
      [["/above/:id"], RequestMethod.GET, "above"],
      [["/below/:id"], RequestMethod.GET, "below"],
    ]);
    for (const method of [pages.above, pages.below]) expect([reflector.get(Role, method), reflector.get("cost", method), method.length]).toEqual(["buyer", 1, 1]);
    expect([pages.above.name, pages.below.name]).toEqual(["above", "below"]);
    expect(await pages.below(42)).toEqual({ id: 42, cents: 2 });
    expect(await pages.above(42)).toEqual({ id: 42, cents: 2 });
  });

  it("has types", () => {
    class Wrong {
      // @ts-expect-error the method takes a string
      @Cached((id: number) => productPage(id))
      async text(id: string): Promise<Page> {
        return { id: Number(id), cents: 0 };
      }

      // @ts-expect-error the method returns something else
      @Cached((id: number) => productPage(id))
      async other(id: number): Promise<number> {
        return id;
      }

      @Cached((id: number, add = 5) => productPage(id + add))
      async defaults(id: number, add = 5): Promise<Page> {
        return { id: id + add, cents: 0 };
      }

      @Cached((...ids: number[]) => productPage(ids[0] ?? 0))
      async rest(...ids: number[]): Promise<Page> {
        return { id: ids[0] ?? 0, cents: 0 };
      }

      @Cached((id: number) => productPage(id))
      async more(id: number): Promise<Page & { name: string }> {
        return { id, cents: 0, name: "" };
      }
    }
    expect(Wrong).toBeDefined();
  });
});

it("works in CommonJS", async () => {
  const require = createRequire(import.meta.url);
  const client = require("@unstale/client") as typeof import("@unstale/client");
  const nest = require("@unstale/client/nest") as typeof import("@unstale/client/nest");
  expect(nest.UnstaleCache).not.toBe(UnstaleCache);
  const app = await application(nest.UnstaleModule.forRoot({ redis: client.ioredis(redis.client) }));
  expect(await app.get(nest.UnstaleCache).fetch(client.readOf<number>("shop:one", { ttl: 1000 }), async () => 1)).toBe(1);
});
