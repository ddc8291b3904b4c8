<?php

// The code of README.md about Laravel, which Laravel.php runs with $load.

declare(strict_types=1);

use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\DB;
use Shop\ShopCache;
use Unstale\Laravel\Outbox;
use Unstale\Transaction;

$page = Cache::store('unstale')->remember(ShopCache::productPage(42), null, fn () => $load(42));
$page = Cache::store('unstale')->flexible('zahraah:prod:product:42', [600, 660], fn () => $load(42));

$outbox = app(Outbox::class);
DB::transaction(function () use ($outbox): void {
    DB::table('products')->where('id', 42)->update(['price_cents' => 4490]);
    $outbox->enqueue(ShopCache::invalidateProduct(42));
});

$done = $outbox->inTransaction(function (Transaction $tx): void {
    DB::table('products')->where('id', 42)->update(['price_cents' => 3990]);
    $tx->enqueue(ShopCache::invalidateProduct(42));
}, attempts: 5);
$token = $done->token;
