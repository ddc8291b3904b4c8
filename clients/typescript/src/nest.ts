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

/**
 * Returns a decorator that makes a method the loader of a read: the method runs only if the cache does
 * not have its value. `read` gets the arguments of the method and returns a read of a generated module:
 *
 * ```ts
 * @Cached((id: number) => productPage<Page>(id))
 * async page(id: number): Promise<Page> { ... }
 * ```
 *
 * The class must be a provider or a controller. The method must load from the primary, and what it
 * returns must be a value of JSON. It may run for callers in other requests, so it must not depend on
 * the request. For an `AbortSignal` or a write token, use `UnstaleCache.fetch`.
 */
export function Cached<A extends unknown[], T>(read: (...args: A) => Read<T>) {
  return <F extends (...args: A) => Promise<T>>(target: object, _: string | symbol, descriptor: TypedPropertyDescriptor<F>): void => {
    const load = descriptor.value;
    if (load === undefined) throw new TypeError("@Cached is for methods");
    if (!(injected in target)) {
      Object.defineProperty(target, injected, { writable: true, value: undefined });
      Inject(UnstaleCache)(target, injected);
    }
    descriptor.value = function (this: { [injected]?: UnstaleCache }, ...args: A): Promise<T> {
      const cache = this[injected];
      if (cache === undefined) throw new Error("@Cached: NestJS did not make this object; it must be a provider or a controller");
      return cache.fetch(read(...args), () => load.apply(this, args));
    } as F;
  };
}
