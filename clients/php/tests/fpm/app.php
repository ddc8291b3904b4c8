<?php

// The application of FpmTest: one read, with the options of the query.

declare(strict_types=1);

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Load;
use Unstale\Options;
use Unstale\Read;

require __DIR__ . '/../../autoload.php';

$ask = json_decode($_SERVER['QUERY_STRING'], true, 512, JSON_THROW_ON_ERROR);
if ($ask['session'] ?? false) {
    session_id('unstale');
    session_start();
}
$connections = Connections::url("redis://127.0.0.1:$ask[port]", $ask['persistent'] ?? false);
$cache = new Cache($connections, new Options(...($ask['options'] ?? [])));
$result = $cache->fetchResult(new Read('k', 60_000, stale: 60_000), function (Load $load) use ($ask): mixed {
    if (isset($ask['waits'])) { // until the test says so
        $redis = new \Redis();
        $redis->connect('127.0.0.1', $ask['port']);
        $redis->rPush('began', '1');
        $redis->blPop($ask['waits'], 10);
    }
    return $ask['value'];
});
$id = null;
if ($ask['persistent'] ?? false) {
    $redis = new \Redis();
    $redis->connect('127.0.0.1', $ask['port']);
    $id = preg_match_all('/^id=(\d+).* cmd=(?!client)/m', $redis->rawCommand('CLIENT', 'LIST'), $found) ? $found[1] : [];
}
echo json_encode([
    'value' => $result->value,
    'source' => $result->source,
    'stale' => $result->stale,
    'pid' => getmypid(),
    'id' => $id,
    'healthy' => $cache->healthy()?->getMessage(),
]);
