export { Cache } from "./cache.js";
export type { Integers } from "./entry.js";
export { ClosedError, LoadTimeoutError } from "./options.js";
export type { CacheOptions, FetchOptions, Hooks, Load, Loader, ManyLoader, ReadStatistics, Result, Source, Statistics } from "./options.js";
export * from "./outbox.js";
export { ReadMap, intText, readOf, rowText, uuidText, type Id, type Policy, type Read, type ReadEntry, type ReadVar } from "./read.js";
export { ioredis, nodeRedis, type Connector, type IORedisClient, type Link, type NodeRedisClient } from "./redis.js";
export { formatToken, joinTokens, makeToken, parseToken, settled, tokenLifetime, type Queryable, type Run, type Token, type Verdict } from "./token.js";
