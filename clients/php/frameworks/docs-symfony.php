<?php

// The code of README.md about Symfony, which Symfony.php runs with $cache and $repository.

declare(strict_types=1);

use Shop\ShopCache;
use Symfony\Contracts\Cache\ItemInterface;
use Unstale\Symfony\Pool;

$pool = new Pool($cache, namespace: 'zahraah:prod:');
$page = $pool->get(ShopCache::productPage(42), fn () => $repository->page(42));
$same = $pool->get('product:42', function (ItemInterface $item) use ($repository): array {
    $item->expiresAfter(600);
    $item->tag('category-7');
    return $repository->page(42);
});
