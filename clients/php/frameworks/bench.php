<?php

// Measures hits in Redis, with this client and with what Laravel and Symfony have, in this process, on
// a Redis and a worker of its own:
//
//     php -d opcache.enable_cli=1 bench.php [BLOCKS] [CALLS]
//
// Prints the medians of 25 (BLOCKS) interleaved blocks of 200 (CALLS) calls each, their ratios to a bare
// GET or MGET with json_decode() in the same round (the median), and between which values the middle half
// of these is.

declare(strict_types=1);

namespace Unstale\Frameworks;

use Unstale\Read;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/Site.php';
require __DIR__ . '/checks.php';

[$blocks, $count] = [(int) ($argv[1] ?? 25), (int) ($argv[2] ?? 200)];
$site = new Site();
$fresh = 1800;
$libraries = require __DIR__ . '/libraries.php';
$value = ['id' => 42, 'name' => \str_repeat('ä', 50), 'prices' => \range(100, 130), 'text' => \str_repeat('lorem ipsum ', 60)];
$load = static fn () => $value;
$decode = static fn (string $text) => \json_decode($text, true);
$redis = $site->redis();
$redis->set('bare', \json_encode($value));
$calls = ['GET and json_decode of phpredis' => [static fn () => $decode($redis->get('bare')), $value]];
foreach ($libraries as $name => $open) {
    [$get] = $open($site->port, $site->mysql->socket);
    $calls[$name] = [static fn () => $get('product:' . \crc32($name), $load), $value];
}
$names = \array_map(static fn (int $i): string => "many:$i", \range(1, 20));
$values = \array_fill_keys($names, $value);
$redis->mSet(\array_map(\json_encode(...), $values));
$reads = \array_map(static fn (string $key) => new Read("shop:$key", $fresh * 1000, tags: ['shop:product-7']), $names);
$loadMany = static fn (array $missing) => \array_fill_keys(\array_map(static fn (Read $read) => $read->key, $missing), $value);
$many = $cache($site->port);
$calls['MGET and json_decode of 20'] = [static fn () => \array_map($decode, $redis->mGet($names)), \array_values($values)];
$calls['unstale/client, fetchMany of 20 with a tag'] = [
    static fn () => \array_values($many->fetchMany($reads, $loadMany)),
    \array_values($values),
];
foreach ($calls as $name => [$call, $want]) {
    $call(); // stores
    same($want, $call(), $name);
}
$times = $ratios = [];
for ($block = -1; $block < $blocks; $block++) { // the first one does not count
    foreach ($calls as $name => [$call]) {
        $begun = \hrtime(true);
        for ($i = 0; $i < $count; $i++) {
            $call();
        }
        $took = (\hrtime(true) - $begun) / $count / 1000;
        $isMany = (int) \str_contains($name, ' of 20');
        if (\str_contains($name, 'json_decode')) {
            $bare[$isMany] = $took;
        }
        if ($block >= 0) {
            $times[$name][] = $took;
            $ratios[$name][] = $took / $bare[$isMany];
        }
    }
}
$part = static function (array $all, float $share): float {
    \sort($all);
    return $all[(int) \round((\count($all) - 1) * $share)];
};
echo 'PHP ' . \PHP_VERSION . ', phpredis ' . \phpversion('redis') . ', a value of ' . \strlen(\json_encode($value)) . " bytes\n";
foreach ($times as $name => $all) {
    \printf("%-45s %7.1f us %5.2f (%.2f to %.2f)\n", $name, $part($all, 0.5), ...\array_map(static fn ($share) => $part($ratios[$name], $share), [0.5, 0.25, 0.75]));
}
