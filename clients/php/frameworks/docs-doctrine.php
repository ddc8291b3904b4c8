<?php

// The code of README.md about Doctrine, which Doctrine.php runs with $connection.

declare(strict_types=1);

use Doctrine\DBAL\Connection;
use Shop\ShopCache;
use Unstale\Doctrine\Outbox;
use Unstale\Transaction;

$outbox = new Outbox();
$connection->transactional(function (Connection $connection) use ($outbox): void {
    $connection->update('products', ['price_cents' => 4490], ['id' => 42]);
    $outbox->enqueue($connection, ShopCache::invalidateProduct(42));
});

$done = $outbox->inTransaction($connection, function (Transaction $tx) use ($connection): void {
    $connection->update('products', ['price_cents' => 3990], ['id' => 42]);
    $tx->enqueue(ShopCache::invalidateProduct(42));
});
$token = $done->token;
