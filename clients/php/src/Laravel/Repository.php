<?php

declare(strict_types=1);

namespace Unstale\Laravel;

use Illuminate\Cache\Events\CacheHit;
use Illuminate\Cache\Events\CacheMissed;
use Illuminate\Cache\Events\ForgettingKey;
use Illuminate\Cache\Events\KeyForgetFailed;
use Illuminate\Cache\Events\KeyForgotten;
use Illuminate\Cache\Events\RetrievingKey;
use Illuminate\Cache\Repository as LaravelRepository;
use Illuminate\Contracts\Cache\Store;
use Unstale\Cache;
use Unstale\Load;
use Unstale\Read;

use function Illuminate\Support\enum_value;

/**
 * What `Cache::store` returns. `remember`, `rememberForever`, `sear` and `flexible` are fetches with
 * leases: no value from before an invalidation is stored after it.
 *
 * ```php
 * $page = Cache::remember(ShopCache::productPage(42), null, fn () => Product::findOrFail(42)->toArray());
 * $page = Cache::flexible('zahraah:prod:product:42', [600, 660], fn () => ...);
 * ```
 *
 * A read has the time, the jitter and the tags of the map. A text is a key as the map's keys are,
 * behind the `prefix` of this store's configuration, not Laravel's. The callback must load
 * from the primary, and with `flexible` it can run after the response. Values are JSON: an object
 * comes back as an array, also to the caller whose callback made it. As in Laravel, null is not
 * kept, unless the read says so.
 *
 * All else is plain: `put`, `add`, `forever`, `increment`, `touch`, locks and the rate limiter use
 * the store that `plain` names, with its keys, and no invalidation reaches them. `get` finds what
 * was remembered, or else what was put. `put` deletes what was remembered, and `remember` does not
 * find what was put: a value that was read before a change must not outlive it. `increment` and
 * `touch` do not see what was remembered. With tags, nothing is plain.
 */
class Repository extends LaravelRepository
{
    private readonly string $prefix;
    /** @var list<string> */
    private array $tags = [];

    /**
     * @param Store                $plain  the store of all methods that are not fetches
     * @param array<string, mixed> $config `store`, the name in events, and `prefix`
     */
    public function __construct(private readonly Cache $cache, Store $plain, array $config = [])
    {
        parent::__construct($plain, $config);
        $this->prefix = $config['prefix'] ?? '';
    }

    /**
     * Returns a value that was remembered, or else put. It never loads or waits.
     *
     * @param Read|\UnitEnum|array|string $key
     */
    public function get($key, $default = null): mixed
    {
        if (\is_array($key)) {
            return $this->many($key);
        }
        $value = $this->cache->get($this->read($key))?->value;
        if ($value === null) {
            return $this->tags === [] ? parent::get($this->name($key), $default) : \value($default);
        }
        $this->event(new RetrievingKey($this->getName(), $this->name($key)));
        $this->event(new CacheHit($this->getName(), $this->name($key), $value, $this->tags));
        return $value;
    }

    /** Is `get` of each key, with as many round trips. */
    public function many(array $keys)
    {
        $values = [];
        foreach ($keys as $key => $default) {
            [$key, $default] = \is_string($key) ? [$key, $default] : [$default, null];
            $values[$this->name($key)] = $this->get($key, $default);
        }
        return $values;
    }

    /**
     * Returns the value of a key from Redis, or the callback's, which it stores.
     *
     * @param Read|\UnitEnum|string                              $key
     * @param \Closure|\DateTimeInterface|\DateInterval|int|null $ttl a number of seconds; null: the
     *                                                                time of the read, of a text a
     *                                                                year; 0: it is not stored
     */
    public function remember($key, $ttl, \Closure $callback)
    {
        return $this->rememberWithWarmth($key, $ttl, $callback)[0];
    }

    /** Is `remember`, and returns also whether the value was in Redis. */
    public function rememberWithWarmth($key, $ttl, \Closure $callback): array
    {
        $seconds = $ttl === null || $ttl instanceof \Closure ? null : $this->getSeconds($ttl);
        return $this->fetch($key, $this->read($key, $seconds), function (Load $load) use ($ttl, $seconds, $callback) {
            $value = $callback();
            $late = $ttl instanceof \Closure ? $ttl($value) : null;
            $seconds = $late === null ? $seconds : $this->getSeconds($late);
            if ($seconds !== null) {
                $load->ttl(\min($seconds * 1000, Read::LONGEST));
            }
            return $value;
        });
    }

    /** Is `remember` with null for its time, and so is `sear`. */
    public function rememberForever($key, \Closure $callback)
    {
        return $this->remember($key, null, $callback);
    }

    /**
     * Returns a value that is at most `$ttl[0]` seconds old, or one of up to `$ttl[1]` seconds: then
     * one process replaces it, after its response. An invalidated value is not returned at all.
     *
     * @param Read|\UnitEnum|string $key
     * @param array|null            $ttl         null: the times of the read
     * @param array|null            $lock        has no effect: the lease is the lock
     * @param bool                  $alwaysDefer has no effect
     */
    public function flexible($key, $ttl, $callback, $lock = null, $alwaysDefer = false)
    {
        [$fresh, $stale] = $ttl === null ? [null, null] : [$this->getSeconds($ttl[0]), $this->getSeconds($ttl[1])];
        return $this->fetch($key, $this->read($key, $fresh, $stale), static fn () => \value($callback))[0];
    }

    /** Plain, and deletes what was remembered. */
    public function put($key, $value, $ttl = null)
    {
        if (!\is_array($key)) {
            $this->plain($key);
            $key = $this->name($key);
        }
        return parent::put($key, $value, $ttl);
    }

    /** Plain, and deletes what was remembered. */
    public function putMany(array $values, $ttl = null)
    {
        $this->plain(...\array_map(\strval(...), \array_keys($values)));
        return parent::putMany($values, $ttl);
    }

    /** Plain, and deletes what was remembered. */
    public function forever($key, $value)
    {
        $this->plain($key);
        return parent::forever($this->name($key), $value);
    }

    /** Plain. It adds nothing if a value was remembered. */
    public function add($key, $value, $ttl = null)
    {
        $this->plain();
        return $this->cache->get($this->read($key))?->value === null && parent::add($this->name($key), $value, $ttl);
    }

    /**
     * Deletes what was remembered or put, and prevents running loads from storing their values.
     * Nothing repeats this if the process dies before it, or Redis is away: then an old value counts
     * until its time is over. Put an invalidation into the transaction of the change instead, with
     * `Outbox`. Returns whether Redis has done it.
     */
    public function forget($key)
    {
        $name = $this->name($key);
        $this->event(new ForgettingKey($this->getName(), $name, $this->tags));
        $done = $this->cache->delete([$this->read($key)->key]);
        if ($this->tags === []) {
            $this->store->forget($name);
        }
        $this->event(new ($done ? KeyForgotten::class : KeyForgetFailed::class)($this->getName(), $name, $this->tags));
        return $done;
    }

    /**
     * Returns a repository whose fetches store values with tags. All callers of a key should use the
     * same tags. It has no plain methods: they would not know the tags.
     */
    public function tags($names)
    {
        $tagged = clone $this;
        $names = \is_array($names) ? \array_values($names) : \func_get_args();
        $names = \array_map(fn ($tag): string => $this->prefix . $this->name($tag), $names);
        $tagged->tags = [...$this->tags, ...$names];
        $tagged->store = new class () {
            public function __call(string $method, array $arguments): never
            {
                throw new \BadMethodCallException("$method is not for tags: use remember, flexible, forget or flush");
            }
        };
        return $tagged;
    }

    public function supportsTags()
    {
        return true;
    }

    /**
     * Makes the values of all tags outdated, with the limits of `forget`, and so does `flush`. Without
     * tags, it empties the plain store, which with Laravel's Redis store is its whole database.
     */
    public function clear(): bool
    {
        return $this->tags === [] ? parent::clear() : $this->cache->delete([], $this->tags);
    }

    public function flush(): bool
    {
        return $this->clear();
    }

    /** @return array{mixed, bool} */
    private function fetch(mixed $key, Read $read, callable $loader): array
    {
        $result = $this->cache->fetchResult($read, $loader);
        $this->event($result->source !== 'loader'
            ? new CacheHit($this->getName(), $this->name($key), $result->value, $this->tags)
            : new CacheMissed($this->getName(), $this->name($key), $this->tags));
        return [$result->value, $result->source !== 'loader'];
    }

    /** Checks that a plain method can run, and deletes what was remembered. */
    private function plain(mixed ...$keys): void
    {
        if ($this->tags !== []) {
            $this->store->put(); // throws
        }
        if ($keys !== []) {
            $this->cache->delete(\array_map(fn ($key): string => $this->read($key)->key, $keys));
        }
    }

    /** Returns the read of a key, and for how many seconds its value is fresh, and is kept. */
    private function read(mixed $key, ?int $fresh = null, ?int $kept = null): Read
    {
        if ($key instanceof Read) {
            $times = $kept === null ? [] : self::times($fresh, $kept);
            return $this->tags === [] && $times === [] ? $key
                : new Read(...$times + ['tags' => [...$key->tags, ...$this->tags]] + \get_object_vars($key));
        }
        $times = self::times($fresh ?? Read::LONGEST, $kept ?? 0);
        $key = $this->prefix . $this->name($key);
        return new Read(...$times, key: $key, name: 'laravel', jitter: 0.0, negative: 0, tags: $this->tags);
    }

    /** @return array{ttl: int, stale: int} */
    private static function times(int $fresh, int $kept): array
    {
        $ms = static fn (int $seconds): int => \min(\max($seconds, 0), \intdiv(Read::LONGEST, 1000)) * 1000;
        return ['ttl' => \max($ms($fresh), 1), 'stale' => $ms($kept - $fresh)];
    }

    private function name(mixed $key): string
    {
        return $key instanceof Read ? $key->key : (string) enum_value($key);
    }
}
