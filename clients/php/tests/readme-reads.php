<?php

// The code of README.md about reads and connections, which ReadmeReadsTest runs.

declare(strict_types=1);

use App\ShopCache;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Load;
use Unstale\Options;

$cache = new Cache(Connections::url($redisUrl));

$application = new \Redis(); // leaves a pooled connection in its database
$application->pconnect($host, $port);
$application->select(3);
unset($application);

$connections = new Connections(function (float $seconds, bool $isFresh) use ($host, $port): \Redis {
    $redis = new \Redis();
    $isFresh ? $redis->connect($host, $port, $seconds) : $redis->pconnect($host, $port, $seconds);
    $redis->select(0); // a pooled connection stays in the database of the last who used it
    return $redis;
});

$page = $cache->fetch(ShopCache::productPage(42), function (Load $load) use ($pdo): ?array {
    $row = $pdo->query('SELECT name, category_id, sale_ends_in FROM products WHERE id = 42')->fetch(PDO::FETCH_ASSOC);
    if ($row === false) {
        return null; // remembered for two minutes, or the TTL of the read if shorter, with its jitter
    }
    $load->tag("category:$row[category_id]");
    $load->ttl(1000 * $row['sale_ends_in']); // in milliseconds: the value never exceeds it
    return $row;
});
$results[] = $page;

$_COOKIE['write'] = ['x'];
$loader = fn (): array => ['name' => 'loaded'];
$cache = new Cache(Connections::url($redisUrl), new Options(primary: fn (): PDO => new PDO($dsn, $user, $password)));
$token = $_COOKIE['write'] ?? null;
$page = $cache->fetch(ShopCache::productPage(42), $loader, is_string($token) ? $token : null); // write[]=x is an array
$results[] = $page;

$cache = new Cache(Connections::url($redisUrl), new Options(later: true));
$page = $cache->fetch(ShopCache::productPage(42), $loader);
$cache->finish();
$results[] = $page;

$cache = new Cache(Connections::url($redisUrl), new Options(memory: 500)); // milliseconds
