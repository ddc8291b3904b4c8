<?php

// Compares reads of this client with a bare GET and json_decode(), and with Symfony's pools. It needs
// redis-server on PATH, and Symfony Cache (Debian: php-symfony-cache) for the last rows:
//
//     php clients/php/bench/bench.php [ROUNDS] [READS]
//
// Blocks of READS (200) reads alternate, ROUNDS (25) times; shown are the medians of a block per read.

declare(strict_types=1);

use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Cache\Adapter\RedisTagAwareAdapter;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Contracts\Cache\ItemInterface;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;
use Unstale\Read;
use Unstale\Tests\RedisServer;

require __DIR__ . '/../autoload.php';
@include 'Symfony/Component/Cache/autoload.php';

[$rounds, $reads] = [(int) ($argv[1] ?? 25), (int) ($argv[2] ?? 200)];
$server = new RedisServer();
$connect = static function () use ($server): Redis {
    $redis = new Redis();
    $redis->connect('127.0.0.1', $server->port);
    return $redis;
};
$page = [
    'id' => 42,
    'name' => str_repeat('A product with a name. ', 4),
    'price_cents' => 1999,
    'in_stock' => true,
    'variants' => array_map(static fn (int $i): array => ['sku' => "sku-$i", 'cents' => 100 * $i], range(1, 10)),
];
$load = static fn (): array => $page;
$bare = $connect();
$cache = new Cache(Connections::url($server->url()), new Options(timeout: 5000, source: 'shop'));
$plain = new Read('plain', 3_600_000);
$tagged = new Read('tagged', 3_600_000, tags: ['category:7']);
$bare->set('bare', json_encode($page));
$keys = array_map(static fn (int $i): string => "many:$i", range(1, 20));
$many = array_map(static fn (string $key): Read => new Read($key, 3_600_000, tags: ['category:7']), $keys);
$loadMany = static fn (array $missing): array => array_fill_keys(array_map(static fn (Read $r): string => $r->key, $missing), $page);
$bare->mSet(array_fill_keys(array_map(static fn (string $key): string => "bare:$key", $keys), json_encode($page)));
$bareKeys = array_map(static fn (string $key): string => "bare:$key", $keys);
$cases = [
    'GET, json_decode' => static fn () => json_decode($bare->get('bare'), true),
    'fetch' => static fn () => $cache->fetch($plain, $load),
    'fetch, a tag' => static fn () => $cache->fetch($tagged, $load),
    'MGET of 20, json_decode' => static fn () => array_map(static fn (string $v) => json_decode($v, true), $bare->mGet($bareKeys)),
    'fetchMany of 20, a tag' => static fn () => $cache->fetchMany($many, $loadMany),
];
if (class_exists(RedisAdapter::class)) {
    $tag = static function (ItemInterface $item) use ($page): array {
        $item->tag(['category.7']);
        return $page;
    };
    $pools = [new RedisAdapter($connect()), new TagAwareAdapter(new RedisAdapter($connect(), 'a')), new RedisTagAwareAdapter($connect(), 'b')];
    $cases += [
        'Symfony RedisAdapter' => static fn () => $pools[0]->get('k', $load),
        'Symfony TagAwareAdapter, a tag' => static fn () => $pools[1]->get('k', $tag),
        'Symfony RedisTagAwareAdapter, a tag' => static fn () => $pools[2]->get('k', $tag),
    ];
}
$beats = $connect();
$times = [];
for ($round = -2; $round < $rounds; $round++) {
    foreach ($cases as $name => $case) {
        $t = (int) (microtime(true) * 1e6); // as a worker does
        $beats->hSet('unstale:alive', 'shop', json_encode(['t' => $t, 'lease' => 10_000]));
        $begun = hrtime(true);
        for ($i = 0; $i < $reads; $i++) {
            $case();
        }
        if ($round >= 0) {
            $times[$name][] = (hrtime(true) - $begun) / 1000 / $reads;
        }
    }
}
$base = [];
foreach ($times as $name => $all) {
    sort($all);
    $median = $all[intdiv(count($all), 2)];
    $isMany = str_contains($name, '20');
    $base[$isMany] ??= $median;
    printf("%-36s %7.1f us  %.2f of the bare reads\n", $name, $median, $median / $base[$isMany]);
}
