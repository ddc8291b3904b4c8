<?php

declare(strict_types=1);

namespace Unstale\Symfony;

use Symfony\Contracts\Cache\TagAwareCacheInterface;
use Symfony\Contracts\Service\ResetInterface;
use Unstale\Cache;
use Unstale\Load;
use Unstale\Read;

/**
 * A pool for code with Symfony's cache contracts. `get` is a fetch with a lease:
 *
 * ```php
 * $page = $pool->get(ShopCache::productPage(42), fn (ItemInterface $item) => $repository->page(42));
 * $page = $pool->get('zahraah:prod:product:42', function (ItemInterface $item) { ... });
 * ```
 *
 * A read has the time, the jitter and the tags of the map. A text is a key as the map's keys are,
 * with `:`, behind the pool's namespace; it counts for the callback's `expiresAfter`, or the pool's
 * default. Use the same for all callers of a key.
 *
 * Values are JSON: an object comes back as an array, also to the caller whose callback made it. The
 * other differences from Symfony's pools: null counts for about two minutes; `$metadata` is empty.
 */
final class Pool implements TagAwareCacheInterface, ResetInterface
{
    /**
     * @param string $namespace       what all keys and tags begin with that are not of a read
     * @param int    $defaultLifetime for how many seconds the values of such keys count, 1 to a year
     *
     * @throws \ValueError for another time
     */
    public function __construct(
        private readonly Cache $cache,
        private readonly string $namespace = '',
        private readonly int $defaultLifetime = 3600,
    ) {
        if ($defaultLifetime < 1 || $defaultLifetime > 31_536_000) {
            throw new \ValueError("defaultLifetime is $defaultLifetime, wanted 1 to 31536000 seconds, which is a year");
        }
    }

    /**
     * Returns the value of a key from Redis, or the callback's, which it stores. No value from
     * before an invalidation is stored after it. The callback must load from the primary. It can run
     * after the response, to replace an expired value. The first value with a tag that only the
     * callback names is not stored, but the second is.
     *
     * @param callable(Item, bool &): mixed $callback it can set its second argument to false: then
     *                                                nothing is stored
     * @param float|null                    $beta     INF deletes the value first. Other values have
     *                                                no effect: one process loads, and a read's
     *                                                `stale` replaces values early
     * @param array<never>|null             $metadata is set to an empty array
     *
     * @throws InvalidArgument for an empty key or a negative `$beta`
     */
    public function get(string|Read $key, callable $callback, ?float $beta = null, ?array &$metadata = null): mixed
    {
        if ($beta < 0) {
            throw new InvalidArgument('$beta must be 0 or more');
        }
        $read = $this->read($key);
        $metadata = [];
        if ($beta === \INF) {
            $this->cache->delete([$read->key]);
        }
        return $this->cache->fetch($read, function (Load $load) use ($read, $callback): mixed {
            $item = new Item($read->key, $this->namespace, $load);
            $save = true;
            $value = $callback($item, $save);
            $item->end();
            if (!$save) {
                $load->skip();
            }
            return $value;
        });
    }

    /**
     * Deletes a value, and prevents running loads from storing theirs. Nothing repeats this if the
     * process dies before it, or Redis is away: then an old value counts until its time is over. For
     * a change in MySQL, put an invalidation into its transaction instead, with `Outbox`. Returns
     * whether Redis has done it.
     */
    public function delete(string|Read $key): bool
    {
        return $this->cache->delete([$this->read($key)->key]);
    }

    /**
     * Makes all values with one of the tags outdated, with the limits of `delete`. Returns whether
     * Redis has done it.
     *
     * @param string[] $tags
     */
    public function invalidateTags(array $tags): bool
    {
        $name = fn ($tag): string => $this->namespace . InvalidArgument::unlessText($tag, 'tag');
        return $this->cache->delete([], \array_map($name, \array_values($tags)));
    }

    /** Runs the loads that were put off until after the response. Symfony calls this between requests. */
    public function reset(): void
    {
        $this->cache->finish();
    }

    private function read(string|Read $key): Read
    {
        if ($key instanceof Read) {
            return $key;
        }
        $name = $this->namespace . InvalidArgument::unlessText($key, 'key');
        return new Read($name, $this->defaultLifetime * 1000, 'symfony', stale: 0);
    }
}
