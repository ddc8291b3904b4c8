<?php

// Returns a function that makes an application of Laravel, as each process has it.

declare(strict_types=1);

use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Config\Repository as Config;
use Illuminate\Database\DatabaseServiceProvider;
use Illuminate\Foundation\Application;
use Illuminate\Redis\RedisServiceProvider;
use Illuminate\Support\Defer\DeferredCallbackCollection;
use Illuminate\Support\Facades\Facade;
use Unstale\Laravel\UnstaleServiceProvider;

return static function (string $socket, int $port): Application {
    $app = new Application(sys_get_temp_dir());
    $app->instance('config', new Config([
        'app' => ['env' => 'testing'],
        'logging' => ['default' => 'errors', 'channels' => ['errors' => ['driver' => 'errorlog', 'level' => 'error']]],
        'cache' => ['default' => 'unstale', 'prefix' => 'laravel-cache-', 'stores' => [
            'redis' => ['driver' => 'redis', 'connection' => 'default'],
            'unstale' => ['prefix' => 'shop:', 'options' => ['timeout' => 5000, 'later' => true]]
                + (require __DIR__ . '/docs-store.php')['unstale'],
        ]],
        'database' => [
            'default' => 'mysql',
            'connections' => ['mysql' => ['driver' => 'mysql', 'unix_socket' => $socket, 'username' => 'root',
                'password' => '', 'database' => 'shop', 'prefix' => '']],
            'redis' => ['client' => 'phpredis', 'options' => ['prefix' => 'laravel-database-'],
                'default' => ['host' => '127.0.0.1', 'port' => $port, 'database' => 0]],
        ],
    ]));
    Facade::clearResolvedInstances();
    Facade::setFacadeApplication($app);
    $providers = [CacheServiceProvider::class, RedisServiceProvider::class, DatabaseServiceProvider::class, UnstaleServiceProvider::class];
    array_map($app->register(...), $providers);
    $app->scoped(DeferredCallbackCollection::class);
    $app->boot();
    return $app;
};
