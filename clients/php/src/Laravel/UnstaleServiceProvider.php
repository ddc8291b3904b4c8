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
 * Adds the cache driver `unstale`, and the service `Unstale\Cache`. For a store of config/cache.php
 * see clients/php/frameworks/README.md. Its connection to Redis is one of its own, without prefix,
 * serializer and compression: keys and values are the same in all languages.
 *
 * The service is the cache of the store `unstale`. For Sentinel or a Cluster, bind it yourself.
 * Stores of other names have caches of their own.
 */
final class UnstaleServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singletonIf(Cache::class, self::cache(...));
        // After the response. Octane's copies of the application share this list, and the caches.
        $made = new \WeakMap();
        $this->app->afterResolving(Cache::class, static fn (Cache $cache) => $made[$cache] = true);
        $this->app->terminating(static function () use ($made): void {
            foreach ($made as $cache => $_) {
                $cache->finish();
            }
        });
        $make = self::repository(...); // the manager binds the function below to itself
        $driver = fn (Application $app, array $config): Repository => $make($app, $config, $made);
        $this->callAfterResolving('cache', static fn ($manager) => $manager->extend('unstale', $driver));
    }

    private static function repository(Application $app, array $config, \WeakMap $made): Repository
    {
        $plain = $app['cache']->store($config['plain'] ?? 'redis')->getStore();
        $cache = $config['store'] === 'unstale' ? $app->make(Cache::class) : self::cache($app, $config);
        $made[$cache] = true;
        $repository = new Repository($cache, $plain, $config);
        if ($config['events'] ?? true) {
            $repository->setEventDispatcher($app['events']);
        }
        return $repository;
    }

    /** @param array<string, mixed> $config of a store; empty: of the store `unstale` */
    private static function cache(Application $app, array $config): Cache
    {
        $config = $config ?: $app['config']['cache.stores.unstale']
            ?? throw new \InvalidArgumentException('config/cache.php has no store unstale, which Unstale\Cache is for');
        $name = $config['connection'] ?? 'default';
        $all = $app['config']['database.redis'];
        $redis = (new ConfigurationUrlParser())->parseConfiguration($all[$name] ?? []);
        if (!isset($redis['host'])) {
            throw new \InvalidArgumentException('the cache store ' . ($config['store'] ?? 'unstale')
                . ": database.redis has no connection $name with a host" . (isset($all['clusters'][$name])
                    ? ', but a cluster: name the store unstale, and bind Unstale\Cache in a provider' : ''));
        }
        $redis = Arr::except($redis, ['prefix', 'serializer', 'compression', 'options']);
        $open = static fn (float $seconds, bool $isFresh): \Redis => (new PhpRedisConnector())->connect([
            'timeout' => $seconds,
            'read_timeout' => $seconds,
            'persistent' => ($redis['persistent'] ?? false) && !$isFresh,
        ] + $redis + ['database' => 0], [])->client(); // one that persists may be in another
        $options = ($config['options'] ?? []) + [
            'primary' => static fn (): \PDO => \app('db')->connection($config['database'] ?? null)->getPdo(),
            'logger' => $app['log'],
            'later' => !$app->runningInConsole(),
        ];
        return new Cache(new Connections($open, \sha1(\serialize($redis))), new Options(...$options));
    }
}
