<?php

declare(strict_types=1);

namespace Shop;

use Unstale\Cache;

/** Reads pages through the cache, with leases. */
final class CachedPages implements Pages
{
    public function __construct(private readonly Cache $cache, private readonly Prices $prices)
    {
    }

    public function page(int $id, string $token = ''): ?array
    {
        return $this->cache->fetch(ShopCache::productPage($id), fn () => $this->prices->load($id), token: $token);
    }
}
