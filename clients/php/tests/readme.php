<?php

// The program of README.md, which ReadmeTest runs.

declare(strict_types=1);

use App\ShopCache;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;
use Unstale\Outbox;
use Unstale\Transaction;

ShopCache::map()->check(); // throws if the environment does not have the variables of the map

$pdo = new PDO(getenv('PDO_DSN'), getenv('PDO_USER'), getenv('PDO_PASSWORD'));
$cache = new Cache(Connections::url(getenv('REDIS_URL')), new Options(primary: $pdo));

/** Changes a price, and returns a token of the write. */
function changePrice(PDO $pdo, int $id, int $cents): string
{
    return (new Outbox())->inTransaction($pdo, function (Transaction $tx) use ($id, $cents): void {
        $update = $tx->pdo->prepare('UPDATE products SET price_cents = ? WHERE id = ?');
        $update->execute([$cents, $id]);
        $tx->enqueue(ShopCache::invalidateProduct($id));
    })->token;
}

/** Returns the page of a product, null if it does not exist. */
function page(Cache $cache, PDO $pdo, int $id, ?string $token = null): ?array
{
    return $cache->fetch(ShopCache::productPage($id), function () use ($pdo, $id): ?array {
        $select = $pdo->prepare('SELECT id, price_cents AS cents FROM products WHERE id = ?');
        $select->execute([$id]);
        return $select->fetch(PDO::FETCH_ASSOC) ?: null;
    }, $token);
}

/** Returns the pages of several products with one round trip and at most one query. */
function pages(Cache $cache, PDO $pdo, int ...$ids): array
{
    $reads = array_map(ShopCache::productPage(...), $ids);
    return array_values($cache->fetchMany($reads, function (array $missing) use ($pdo, $ids): array {
        $keys = array_column($missing, 'key');
        $wanted = array_filter($ids, fn (int $id): bool => in_array(ShopCache::productPage($id)->key, $keys, true));
        $select = $pdo->query('SELECT id, price_cents AS cents FROM products WHERE id IN (' . implode(',', $wanted) . ')');
        $pages = [];
        foreach ($select->fetchAll(PDO::FETCH_ASSOC) as $page) {
            $pages[ShopCache::productPage($page['id'])->key] = $page;
        }
        return $pages;
    }));
}
