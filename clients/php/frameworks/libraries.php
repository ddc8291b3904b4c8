<?php

// Returns what races.php and bench.php compare, each used as its documentation says. A library opens
// the cache of a process, and returns get(key, loader), delete(key), and what runs after the response.

declare(strict_types=1);

namespace Unstale\Frameworks;

use Illuminate\Support\Facades\Cache as Laravel;
use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Cache\Adapter\RedisTagAwareAdapter;
use Symfony\Contracts\Cache\ItemInterface;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;
use Unstale\Read;
use Unstale\Symfony\Pool;

const TTL = 3600; // s

$fresh ??= 1; // for how many seconds a value is not replaced, where that is less than its TTL

$has = static fn (string $file): bool => \stream_resolve_include_path($file) !== false && (bool) require_once $file;
$hasSymfony = $has('Symfony/Component/Cache/autoload.php');
$hasLaravel = $has('Illuminate/autoload.php');

/** Makes the client's cache. */
$cache = static fn (int $port, bool $later = false): Cache => new Cache(
    Connections::url("redis://127.0.0.1:$port"),
    new Options(timeout: 5000, lease: 60_000, later: $later, logger: new class () {
        public function warning(): void
        {
        }
    }),
);

$nothing = static fn () => null;
$laravel = static function (string $store, string $method) use ($fresh): \Closure {
    return static function (int $port, string $socket) use ($store, $method, $fresh): array {
        $app = (require __DIR__ . '/application.php')($socket, $port);
        $cache = Laravel::store($store);
        $get = $method === 'flexible'
            ? static fn (string $key, \Closure $load) => $cache->flexible($key, [$fresh, TTL], $load)
            : static fn (string $key, \Closure $load) => $cache->remember($key, TTL, $load);
        $after = static function () use ($app): void {
            $app[\Illuminate\Support\Defer\DeferredCallbackCollection::class]->invoke();
            $app->terminate();
        };
        return [$get, static fn (string $key) => $cache->forget($key), $after];
    };
};
$symfony = static fn (string $class, bool $tags): \Closure => static function (int $port) use ($class, $tags, $nothing): array {
    $pool = new $class(RedisAdapter::createConnection("redis://127.0.0.1:$port"), '', TTL);
    $name = static fn (string $key): string => \strtr($key, ':', '.'); // which its keys cannot have
    return [
        static fn (string $key, \Closure $load) => $pool->get($name($key), static function (ItemInterface $item) use ($load, $tags, $name, $key) {
            $tags && $item->tag('tag.' . $name($key));
            return $load();
        }),
        static fn (string $key) => $tags ? $pool->invalidateTags(['tag.' . $name($key)]) : $pool->delete($name($key)),
        $nothing,
    ];
};
$client = static fn (bool $tags): \Closure => static function (int $port) use ($cache, $tags, $fresh, $nothing): array {
    $made = $cache($port, true);
    $reads = [];
    $read = static function (string $key) use ($tags, $fresh): Read {
        $names = $tags ? [\strtr("shop:$key", ['product:' => 'product-'])] : [];
        return new Read("shop:$key", $fresh * 1000, jitter: 0.0, stale: TTL * 1000, tags: $names);
    };
    $get = static function (string $key, \Closure $load) use ($made, $read, &$reads): mixed {
        return $made->fetch($reads[$key] ??= $read($key), $load);
    };
    return [$get, $nothing, $made->finish(...)];
};
$libraries = ['unstale/client' => $client(false), 'unstale/client, with a tag' => $client(true)];
if ($hasSymfony) {
    $version = $has('Symfony/Component/HttpKernel/autoload.php') ? \Symfony\Component\HttpKernel\Kernel::VERSION : '5.4';
    $libraries += [
        'unstale/client, Symfony' => static function (int $port) use ($cache, $nothing): array {
            $pool = new Pool($cache($port), 'shop:', TTL);
            return [$pool->get(...), $nothing, $nothing];
        },
        "symfony/cache $version RedisAdapter" => $symfony(RedisAdapter::class, false),
        "symfony/cache $version RedisTagAwareAdapter" => $symfony(RedisTagAwareAdapter::class, true),
    ];
}
if ($hasLaravel) {
    $version = \Illuminate\Foundation\Application::VERSION;
    $libraries += [
        'unstale/client, Laravel remember' => $laravel('unstale', 'remember'),
        'unstale/client, Laravel flexible' => $laravel('unstale', 'flexible'),
        "Laravel $version remember" => $laravel('redis', 'remember'),
        "Laravel $version flexible" => $laravel('redis', 'flexible'),
    ];
}

return $libraries;
