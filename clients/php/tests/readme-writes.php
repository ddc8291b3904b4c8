<?php

// The code of README.md about names and writes, which ReadmeTest runs with $pdo.

declare(strict_types=1);

use App\ShopCache;
use Unstale\Outbox;

$read = ShopCache::productPage(42);
$invalidation = ShopCache::invalidateProduct(42, ['category_id' => [7, 9]]); // old and new

$outbox = new Outbox();
$pdo->beginTransaction();
$pdo->exec('UPDATE products SET price_cents = 4490 WHERE id = 42');
$outbox->enqueue($pdo, ShopCache::invalidateProduct(42));
$pdo->commit();

$pdo->beginTransaction();
$rows = $outbox->collect($pdo);
$rows->enqueue(ShopCache::invalidateProduct(42));
$pdo->commit();
$token = $rows->token(); // counts for five minutes from now

$later = ShopCache::invalidateProduct(42)->withNotBefore(new DateTimeImmutable('+10 minutes'))->withTrace('sale');
