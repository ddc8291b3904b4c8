<?php

declare(strict_types=1);

namespace Unstale\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Redis\Connectors\PhpRedisConnector;
use Illuminate\Support\Arr;
use Illuminate\Support\ConfigurationUrlParser;
use Illuminate\Support\ServiceProvider;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;

/**
 * Adds the cache driver `unstale`, and the service `Unstale\Cache`. In config/cache.php, `stores`:
 *
 * ```php
 * 'unstale' => [
 *     'driver' => 'unstale',
 *     'connection' => 'default', // of database.redis: the server and database of the worker
 *     'plain' => 'redis',        // the store of put, increment and locks
 *     'prefix' => '',            // what keys begin with that are given as text
 *     'database' => null,        // the connection to the primary, which write tokens ask
 *     'options' => [],           // of Unstale\Options, such as 'timeout' => 200
 * ],
 * ```
 *
 * The connection to Redis is one of its own, without prefix, serializer and compression: keys and
 * values are the same in all languages. For Sentinel or a Cluster, bind `Unstale\Cache` yourself.
 */
final class UnstaleServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singletonIf(Cache::class, self::cache(...));
        $this->callAfterResolving('cache', fn ($manager) => $manager->extend('unstale', self::repository(...)));
        // After the response. Octane's copies of the application share this list, and the cache.
        $made = new \WeakMap();
        $this->app->afterResolving(Cache::class, static fn (Cache $cache) => $made[$cache] = true);
        $this->app->terminating(static function () use ($made): void {
            foreach ($made as $cache => $_) {
                $cache->finish();
            }
        });
    }

    private static function repository(Application $app, array $config): Repository
    {
        $plain = $app['cache']->store($config['plain'] ?? 'redis')->getStore();
        $made = new Repository($app->make(Cache::class), $plain, $config);
        if ($config['events'] ?? true) {
            $made->setEventDispatcher($app['events']);
        }
        return $made;
    }

    private static function cache(Application $app): Cache
    {
        $config = $app['config']['cache.stores.unstale'] ?? [];
        $redis = (new ConfigurationUrlParser())->parseConfiguration(
            $app['config']['database.redis.' . ($config['connection'] ?? 'default')],
        );
        $redis = Arr::except($redis, ['prefix', 'serializer', 'compression', 'options']);
        $open = static fn (float $seconds, bool $isFresh): \Redis => (new PhpRedisConnector())->connect([
            'timeout' => $seconds,
            'read_timeout' => $seconds,
            'persistent' => ($redis['persistent'] ?? false) && !$isFresh,
        ] + $redis, [])->client();
        $options = ($config['options'] ?? []) + [
            'primary' => static fn (): \PDO => \app('db')->connection($config['database'] ?? null)->getPdo(),
            'logger' => $app['log'],
            'later' => !$app->runningInConsole(),
        ];
        return new Cache(new Connections($open, \sha1(\serialize($redis))), new Options(...$options));
    }
}
