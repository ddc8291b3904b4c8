<?php

// Measures a hit in Redis, with this client and with what Laravel and Symfony have, in this process and
// on a Redis of its own: "php bench.php". Prints the median of 25 interleaved blocks of 200 calls each.

declare(strict_types=1);

namespace Unstale\Frameworks;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/Site.php';
require __DIR__ . '/checks.php';

const BLOCKS = 25;
const CALLS = 200;

$site = new Site();
$fresh = 1800;
$libraries = require __DIR__ . '/libraries.php';
$value = ['id' => 42, 'name' => \str_repeat('ä', 50), 'prices' => \range(100, 130), 'text' => \str_repeat('lorem ipsum ', 60)];
$redis = $site->redis();
$redis->set('bare', \json_encode($value));
$calls = ['GET and json_decode of phpredis' => static fn () => \json_decode($redis->get('bare'), true)];
foreach ($libraries as $name => $open) {
    [$get] = $open($site->port, $site->mysql->socket);
    $calls[$name] = static fn () => $get('product:' . \crc32($name), static fn () => $value);
}
foreach ($calls as $name => $call) {
    $call(); // stores
    same($value, $call(), $name);
}
$times = [];
for ($block = 0; $block < BLOCKS; $block++) {
    foreach ($calls as $name => $call) {
        $begun = \hrtime(true);
        for ($i = 0; $i < CALLS; $i++) {
            $call();
        }
        $times[$name][] = (\hrtime(true) - $begun) / CALLS / 1000;
    }
}
$median = static function (array $all): float {
    \sort($all);
    return $all[\intdiv(\count($all), 2)];
};
$least = $median(\current($times));
echo 'PHP ' . \PHP_VERSION . ', phpredis ' . \phpversion('redis') . ', a value of ' . \strlen(\json_encode($value)) . " bytes\n";
foreach ($times as $name => $all) {
    \printf("%-45s %7.1f us %5.2f\n", $name, $median($all), $median($all) / $least);
}
