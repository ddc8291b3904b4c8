<?php

declare(strict_types=1);

namespace Shop;

/** Reads pages as many applications do: GET, and after a miss SET. */
final class PlainPages implements Pages
{
    public function __construct(private readonly \Redis $redis, private readonly Prices $prices)
    {
    }

    public function page(int $id, string $token = ''): ?array
    {
        $read = ShopCache::productPage($id);
        $text = $this->redis->get($read->key);
        if ($text !== false) {
            return \json_decode($text, true);
        }
        $page = $this->prices->load($id);
        // The price may have changed meanwhile.
        $this->redis->set($read->key, \json_encode($page), ['px' => $read->ttl]);
        return $page;
    }
}
