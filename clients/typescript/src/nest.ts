import { Inject, Logger, Module, ConfigurableModuleBuilder, type OnApplicationShutdown } from "@nestjs/common";
import { Cache } from "./cache.js";
import type { Read } from "./read.js";

/** What `UnstaleModule.forRoot` takes: the options of `Cache`. */
export type UnstaleOptions = ConstructorParameters<typeof Cache>[0];

/**
 * The `Cache` of the application, for injection. NestJS closes it when the application closes, after
 * the HTTP server has answered its last request. The connections of the application stay open.
 */
export class UnstaleCache extends Cache implements OnApplicationShutdown {
  /** Called by NestJS. */
  async onApplicationShutdown(): Promise<void> {
    await this.close();
  }
}

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<UnstaleOptions>()
  .setClassMethodName("forRoot")
  .setExtras({ isGlobal: true }, (definition, { isGlobal }) => ({ ...definition, global: isGlobal }))
  .build();

/**
 * Provides one `UnstaleCache`, to all modules unless `isGlobal` is false:
 *
 * ```ts
 * UnstaleModule.forRoot({ redis: ioredis(client) })
 * UnstaleModule.forRootAsync({ inject: [Redis], useFactory: (client: Redis) => ({ redis: ioredis(client) }) })
 * ```
 */
export class UnstaleModule extends ConfigurableModuleClass {}

Module({
  providers: [
    {
      provide: UnstaleCache,
      inject: [MODULE_OPTIONS_TOKEN],
      useFactory: (options: UnstaleOptions) => new UnstaleCache({ logger: new Logger(UnstaleCache.name), ...options }),
    },
  ],
  exports: [UnstaleCache],
})(UnstaleModule);

const injected: unique symbol = Symbol("UnstaleCache");

/** A method with the arguments of a function R that returns a read, and with the type of the read. */
type Loader<R> = R extends (...args: infer A) => Read<infer T> ? (...args: A) => Promise<T> : never;

/** What the package reflect-metadata adds: decorators of NestJS store values of a method there. */
const metadata = Reflect as {
  getOwnMetadataKeys?(target: object): unknown[];
  getOwnMetadata(key: unknown, target: object): unknown;
  defineMetadata(key: unknown, value: unknown, target: object): void;
};

/**
 * Returns a decorator that makes a method the loader of a read: the method runs only if the cache does
 * not have its value. `read` gets the arguments of the method and returns a read of a generated module:
 *
 * ```ts
 * @Cached((id: number) => productPage<Page>(id))
 * async page(id: number): Promise<Page> { ... }
 * ```
 *
 * The class must be a provider or a controller. Other decorators may be above or below. The method
 * must load from the primary, and what it returns must be a value of JSON. It may run for callers in
 * other requests, so it must not depend on the request. For an `AbortSignal` or a write token, use
 * `UnstaleCache.fetch`.
 */
export function Cached<R extends (...args: never[]) => Read>(read: R) {
  return <F extends Loader<R>>(target: object, name: string | symbol, descriptor: TypedPropertyDescriptor<F>): void => {
    const load = descriptor.value as ((...args: never[]) => Promise<unknown>) | undefined;
    const refuse = (why: string) => new TypeError(`@Cached: ${String(name)} ${why}`);
    if (load === undefined) throw refuse("is not a method");
    if (typeof target === "function") throw refuse("is static, and NestJS injects only into objects; make it a method of a provider");
    if (!(injected in target)) {
      Object.defineProperty(target, injected, { writable: true, value: undefined });
      Inject(UnstaleCache)(target, injected);
    }
    const cached = function (this: { [injected]?: UnstaleCache } | undefined, ...args: never[]): Promise<unknown> {
      if (this === undefined) throw refuse("was called without its object; call it as a method, or bind it");
      const cache = this[injected];
      if (cache === undefined) throw refuse("needs an object that NestJS made; its class must be a provider or a controller");
      return cache.fetch(read(...args), () => load.apply(this, args));
    };
    // Decorators below this one have left their metadata, and perhaps properties, on the method.
    descriptor.value = Object.defineProperties(cached, Object.getOwnPropertyDescriptors(load)) as F;
    for (const key of metadata.getOwnMetadataKeys?.(load) ?? []) metadata.defineMetadata(key, metadata.getOwnMetadata(key, load), cached);
  };
}
