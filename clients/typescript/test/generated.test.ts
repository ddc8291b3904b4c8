import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { beforeEach, describe, expect, test } from "vitest";
import * as shop from "../recipes/shopcache.js";
import { encodeAll } from "../src/row.js";
import * as all from "./generated/all.js";
import * as words from "./generated/words.js";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** What `unstale map describe` says of a map. */
function describeMap(file: string, env: Record<string, string>): { reads_version: string; reads: { name: string; ttl_min_ms: number; ttl_max_ms: number }[] } {
  return JSON.parse(execFileSync(`${root}bin/unstale`, ["map", "describe", "--json", file], { cwd: root, env, encoding: "utf8" }));
}

beforeEach(() => {
  shop.map.use({ APP_ENV: "dev" });
  all.map.use({ APP_ENV: "dev" });
  words.map.use({ APP_ENV: "dev" });
});

describe("the fingerprint is that of unstale map describe", () => {
  test.each([
    [shop.map, "mapping.yaml", { APP_ENV: "dev" }],
    [shop.map, "mapping.yaml", { APP_ENV: "prod", KEY_PREFIX: "a \"b\" \\ é 🛒" }],
    [all.map, "internal/maptool/testdata/all.yaml", { APP_ENV: "prod" }],
    [words.map, "internal/maptool/testdata/words.yaml", { APP_ENV: "" }],
  ])("%#", (map, file, env) => {
    map.use(env);
    expect(map.version).toBe(describeMap(file, env).reads_version);
  });
});

describe("reads", () => {
  test("have the keys, tags and times of the map", () => {
    expect(shop.productPage(42)).toMatchObject({ key: "zahraah:dev:product:42", name: "product_page", ttl: 600_000, jitter: 0.1, tags: [] });
    expect(shop.productPage(42n).key).toBe("zahraah:dev:product:42");
    expect(shop.productPage("9007199254740993").key).toBe("zahraah:dev:product:9007199254740993");
    expect(shop.categoryList(7, 2, "a:b*?").key).toBe("zahraah:dev:category:7:list:p2:sort:a:b*?");
    expect(shop.home()).toMatchObject({ key: "zahraah:dev:home", ttl: 45_000, stale: 10_000 });
    expect(all.categoryList("0AF76519-16CD-43DD-8448-EB211C80319C", 20, "price")).toMatchObject({
      key: "zahraah:dev:category:0af76519-16cd-43dd-8448-eb211c80319c:list:p20:sort:price",
      negative: 0,
    });
    expect(all.home(42, "de")).toMatchObject({ key: "zahraah:dev:de:home", tags: ["brand:42"] });
    expect(words.level(9007199254740993n, 5)).toMatchObject({ key: "level:9007199254740993", tags: ["size:5"], ttl: 3_600_000 });
    expect(words.deleteRead("a", "b", "c", "d", "e", "f", "g").key).toBe('a`$:dev\\"{:a:b:c:d:e:f:g');
    expect(words.intTextRead("x")).toMatchObject({ ttl: 100, jitter: 0.5, staleOnError: 3_600_000, negative: 5000 });
  });

  test.each([
    ["a fraction", shop.productPage(1.5)],
    ["a number that is not exact", shop.productPage(2 ** 53)],
    ["a number as a float", shop.productPage("1e5")],
    ["another text of a number", shop.productPage("042")],
    ["more than 64 bits", shop.productPage(2n ** 63n)],
    ["no text", shop.coupon("")],
    ["a value that JavaScript would convert to text", shop.coupon(undefined as unknown as string)],
    ["nothing for a UUID", all.categoryList(undefined as unknown as string, 1, "new")],
    ["text without UTF-8", shop.coupon("\ud800")],
    ["256 characters", shop.coupon("🛒".repeat(256))],
    ["a page that the map does not list", all.categoryList("0af76519-16cd-43dd-8448-eb211c80319c", 21, "new")],
    ["an order that the map does not list", all.categoryList("0af76519-16cd-43dd-8448-eb211c80319c", 1, "old" as "new")],
    ["what is not a UUID", all.categoryList("0af7651916cd43dd8448eb211c80319c", 1, "new")],
    ["a value between those of a list", words.level(2, 5)],
  ])("%s is not cached", (_, read) => {
    expect(read.error).toContain("and the map makes no such key stale");
  });

  test("the longest text is", () => {
    expect(shop.coupon("🛒".repeat(255)).error).toBeUndefined();
  });

  test("nothing is cached without the variables of the map", () => {
    expect(() => shop.map.use({})).toThrow("the environment variable APP_ENV is not set, and the var env of the map needs it");
    expect(shop.productPage(42).error).toContain("APP_ENV");
    expect(() => shop.map.use({ APP_ENV: "test" })).toThrow("must be one of dev, staging, prod");
  });
});

describe("invalidations", () => {
  const row = (...invalidations: Parameters<typeof encodeAll>[0]) => encodeAll(invalidations).now;

  test("are the rows of Go's generated code", () => {
    expect(row(shop.invalidateProduct(42, { categoryId: [7, 9n, "11"] }))).toEqual([["product", "42", '{"category_id":[7,9,11]}', ""]]);
    expect(row(shop.invalidateProduct("42", { categoryId: undefined }))).toEqual([["product", "42", null, ""]]);
    expect(row(shop.invalidateVariant(3n, [42], { categoryId: 7 }))).toEqual([["variant", "3", '{"category_id":7,"product_id":[42]}', ""]]);
    expect(row(shop.invalidateCoupon("SUMMER"))).toEqual([["coupon", "SUMMER", null, ""]]);
    expect(row(all.invalidateProduct(1, ["0AF76519-16CD-43DD-8448-EB211C80319C"]))).toEqual([["product", "1", '{"category_id":["0af76519-16cd-43dd-8448-eb211c80319c"]}', ""]]);
    expect(row(words.invalidatePage("1", "i", "a", ["DE"], ["EUR"], { size: 5 }))).toEqual([
      ["page", "1", '{"ID":"i","any":"a","country":["DE"],"currency":["EUR"],"size":5}', ""],
    ]);
  });

  test("are refused if a value has not the type of the map, or a required one is missing", () => {
    expect(() => row(shop.invalidateProduct(1.5))).toThrow("id: 1.5 is not an integer");
    expect(() => row(shop.invalidateProduct("abc"))).toThrow('id: "abc" is not an integer of 64 bits');
    expect(() => row(shop.invalidateProduct(1, { categoryId: ["x"] }))).toThrow('params.category_id: element 0: "x" is not an integer of 64 bits');
    expect(() => row(shop.invalidateVariant(1, undefined as unknown as number))).toThrow("params.product_id: is missing; the map requires it");
  });
});
