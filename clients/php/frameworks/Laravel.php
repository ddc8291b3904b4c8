<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

use Illuminate\Cache\Events\CacheHit;
use Illuminate\Cache\Events\CacheMissed;
use Illuminate\Cache\RateLimiter;
use Illuminate\Contracts\Cache\Repository as CacheContract;
use Illuminate\Foundation\Application;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\DB;
use Unstale\Invalidation;
use Unstale\Laravel\Outbox;
use Unstale\Laravel\Repository;
use Unstale\Read;
use Unstale\Token;
use Unstale\Transaction;

if (\stream_resolve_include_path('Illuminate/autoload.php') === false) {
    return null;
}
require_once 'Illuminate/autoload.php';

$application = require __DIR__ . '/application.php';
$never = static fn () => throw new \Exception('the callback must not run');

/** Runs a test with an application. */
$with = static fn (callable $test): \Closure => static function (Site $site) use ($test, $application): void {
    $test($site, $application($site->mysql->socket, $site->port));
};

/** The methods that load, each with a time of ten minutes. */
$loads = [
    'remember' => static fn (string $key, \Closure $load) => Cache::remember($key, 600, $load),
    'rememberForever' => static fn (string $key, \Closure $load) => Cache::rememberForever($key, $load),
    'sear' => static fn (string $key, \Closure $load) => Cache::sear($key, $load),
    'flexible' => static fn (string $key, \Closure $load) => Cache::flexible($key, [500, 600], $load),
];

$tests = [
    'the driver' => $with(static function (): void {
        same(Repository::class, Cache::store()::class);
        same(true, Cache::store() instanceof CacheContract);
        same(Cache::store('redis')->getStore(), Cache::getStore());
    }),
    'the time' => $with(static function (Site $site): void {
        $ttl = static fn (): int => (int) \round($site->redis()->pttl('shop:product:1') / 1000);
        foreach ([600 => 600, 'interval' => new \DateInterval('PT10M'), 'date' => \now()->addMinutes(10), 'late' => static fn (int $price) => 6 * $price] as $time) {
            Cache::forget('product:1');
            same(100, Cache::remember('product:1', $time, static fn () => $site->price()));
            same(true, \abs($ttl() - 600) < 5, 'TTL ' . $ttl());
        }
        Cache::forget('product:1');
        Cache::flexible('product:1', [100, 300], static fn () => 1);
        same(true, \abs($ttl() - 300) < 5, 'TTL ' . $ttl());
        Cache::forget('product:1');
        Cache::rememberForever('product:1', static fn () => 1);
        same(true, \abs($ttl() - 31_536_000) < 5, 'TTL ' . $ttl());
        Cache::forget('product:1');
        same(1, Cache::remember('product:1', 0, static fn () => 1));
        same(false, $site->redis()->get('shop:product:1'));
    }),
    'a read has the times and tags of the map' => $with(static function (Site $site) use ($never): void {
        $read = new Read('shop:product:1', 60_000, jitter: 0.0, stale: 0, tags: ['shop:product-1']);
        same(100, Cache::remember($read, null, static fn () => $site->price()));
        same(100, Cache::flexible($read, null, $never));
        same(100, Cache::get($read));
        same(true, $site->redis()->pttl($read->key) <= 60_000);
    }),
    'flexible returns an expired value, and replaces it after the response' => $with(static function (Site $site, Application $app) use ($never): void {
        $read = new Read('shop:product:1', 1, jitter: 0.0, stale: 600_000);
        Cache::remember($read, null, static fn () => 'old');
        \usleep(3000); // so long is the value fresh, by the clock of Redis
        same('old', Cache::flexible('product:1', [600, 1200], static fn () => 'new'));
        $app->terminate();
        same('new', Cache::flexible('product:1', [600, 1200], $never));
    }),
    'copies of the application that share the cache, as Octane has them' => $with(static function (Site $site, Application $app): void {
        $manager = $app['cache'];
        foreach (['first', 'second'] as $value) {
            $copy = clone $app;
            $manager->setApplication($copy);
            $site->redis()->unlink('shop:product:1');
            $read = new Read('shop:product:1', 1, jitter: 0.0, stale: 600_000);
            $manager->store()->remember($read, null, static fn () => 'old');
            \usleep(3000); // so long is the value fresh, by the clock of Redis
            same('old', $manager->store()->flexible($read, null, static fn () => $value));
            $copy->terminate();
            same(true, \str_contains($site->redis()->get($read->key), $value));
        }
    }),
    'null is not kept' => $with(static function (): void {
        same(null, Cache::remember('product:1', 60, static fn () => null));
        same(1, Cache::remember('product:1', 60, static fn () => 1));
    }),
    'rememberWithWarmth' => $with(static function (Site $site): void {
        same([100, false], Cache::rememberWithWarmth('product:1', 60, static fn () => $site->price()));
        same([100, true], Cache::rememberWithWarmth('product:1', 60, static fn () => $site->price()));
    }),
    'get finds what was remembered, or put' => $with(static function (): void {
        Cache::remember('a', 60, static fn () => ['remembered']);
        Cache::put('b', 'put', 60);
        same(['remembered'], Cache::get('a'));
        same('put', Cache::get('b'));
        same(['a' => ['remembered'], 'b' => 'put', 'c' => null], Cache::many(['a', 'b', 'c']));
        same(['c' => 7], Cache::many(['c' => 7]));
        same([true, false, 'no'], [Cache::has('a'), Cache::has('c'), Cache::get('c', 'no')]);
        same(['remembered'], Cache::pull('a'));
        same(null, Cache::get('a'));
    }),
    'put deletes what was remembered, and remember does not find what was put' => $with(static function (): void {
        Cache::remember('a', 60, static fn () => 'remembered');
        Cache::put('a', 'put', 60);
        same('put', Cache::get('a'));
        same('loaded', Cache::remember('a', 60, static fn () => 'loaded'));
        same('loaded', Cache::get('a'));
        Cache::putMany(['a' => 'many'], 60);
        same('many', Cache::get('a'));
        Cache::forever('a', new \ArrayObject([1]));
        same(true, Cache::get('a') instanceof \ArrayObject || Cache::get('a') instanceof \__PHP_Incomplete_Class);
    }),
    'forget, also while a load runs' => $with(static function (Site $site): void {
        Cache::remember('a', 60, static fn () => 1);
        same(true, Cache::forget('a'));
        Cache::remember('a', 60, static function (): int {
            Cache::forget('a');
            return 2;
        });
        same(3, Cache::remember('a', 60, static fn () => 3));
    }),
    'increment, add, touch, locks and the rate limiter are plain' => $with(static function (Site $site): void {
        same([1, 3, 2], [Cache::increment('n'), Cache::increment('n', 2), Cache::decrement('n')]);
        same([true, false], [Cache::add('x', 1, 60), Cache::add('x', 2, 60)]);
        Cache::remember('y', 60, static fn () => 1);
        same(false, Cache::add('y', 2, 60));
        same(true, Cache::touch('x', 600));
        same(true, Cache::lock('l', 10)->get());
        same(false, Cache::lock('l', 10)->get());
        $limiter = new RateLimiter(Cache::store());
        same([1, 2, true], [$limiter->hit('r'), $limiter->hit('r'), $limiter->tooManyAttempts('r', 2)]);
        same(1, $site->redis()->exists('laravel-database-laravel-cache-n'));
    }),
    'tags' => $with(static function (Site $site) use ($never): void {
        same(100, Cache::tags(['product-1'])->remember('product:1', 600, static fn () => $site->price()));
        same(100, Cache::tags('product-1')->remember('product:1', 600, $never));
        same(100, Cache::tags('product-1')->get('product:1'));
        $site->pdo->exec('UPDATE products SET price_cents = 150'); // which nothing has enqueued
        same(true, Cache::tags('product-1')->flush());
        same(150, Cache::tags('product-1')->remember('product:1', 600, static fn () => $site->price()));
        $site->redis()->unlink('shop:product:1');
        Cache::tags('product-1')->remember('product:1', 600, static fn () => $site->price());
        $site->change(200);
        same(200, Cache::tags('product-1')->remember('product:1', 600, static fn () => $site->price()));
    }),
    'nothing is plain with tags' => $with(static function (Site $site): void {
        $calls = [
            'put' => ['x', 1, 60], 'put of several' => [['x' => 1], 60], 'putMany' => [['x' => 1], 60], 'forever' => ['x', 1],
            'add' => ['x', 1, 60], 'set' => ['x', 1], 'increment' => ['x'], 'decrement' => ['x'], 'touch' => ['x', 60],
            'lock' => ['x', 10], 'restoreLock' => ['x', 'me'], 'funnel' => ['x'], 'withoutOverlapping' => ['x', static fn () => 1],
            'flushLocks' => [],
        ];
        foreach ([Cache::tags('people'), Cache::tags('people')->tags('all')] as $tagged) {
            foreach ($calls as $method => $arguments) {
                $method = \strtok($method, ' ');
                throws(\BadMethodCallException::class, static fn () => $tagged->$method(...$arguments));
            }
        }
        $error = throws(\BadMethodCallException::class, static fn () => $tagged->increment('x'));
        same('increment is not for tags: use remember, flexible, forget or flush', $error->getMessage());
        same([], \array_filter($site->redis()->keys('*'), static fn ($key) => !\str_starts_with($key, 'unstale:')));
        same([null, false, 7], [$tagged->get('x'), $tagged->has('x'), $tagged->get('x', 7)]);
        same([1, true], [Cache::increment('x'), Cache::lock('y', 10)->get()]);
    }),
    'a store has its own connection and options' => $with(static function (Site $site, Application $app) use ($never): void {
        $config = $app['config'];
        $store = $config->get('cache.stores.unstale');
        $config->set('database.redis.other', ['database' => 1] + $config->get('database.redis.default'));
        $config->set('cache.stores.shop', ['connection' => 'other', 'prefix' => 'second:'] + $store);
        same(100, Cache::store('shop')->remember('product:1', 600, static fn () => $site->price()));
        same(100, Cache::store('shop')->remember('product:1', 600, $never));
        same(200, Cache::store('unstale')->remember('product:1', 600, static fn () => 200));
        $redis = $site->redis();
        same([1, 0], [$redis->exists('shop:product:1'), $redis->exists('second:product:1')]);
        $redis->select(1);
        same([0, 1], [$redis->exists('shop:product:1'), $redis->exists('second:product:1')]);
        $redis->flushDB();
        $read = new Read('shop:product:1', 1, jitter: 0.0, stale: 600_000);
        Cache::store('shop')->remember($read, null, static fn () => 'old');
        \usleep(3000); // so long is the value fresh, by the clock of Redis
        same('old', Cache::store('shop')->flexible($read, null, static fn () => 'new'));
        $app->terminate();
        same('new', Cache::store('shop')->flexible($read, [600, 1200], $never));
        $redis->flushDB();
        $config->set('cache.stores.third', ['options' => ['timeout' => 9]] + $store);
        same('timeout is 9, wanted 10 to 5000', throws(\ValueError::class, static fn () => Cache::store('third'))->getMessage());
    }),
    'connections that persist are those of their database' => $with(static function (Site $site, Application $app): void {
        $config = $app['config'];
        $default = ['persistent' => true] + $config->get('database.redis.default');
        unset($default['database']); // Laravel selects none then
        foreach (['one' => ['database' => 1], 'zero' => []] as $name => $database) {
            $config->set("database.redis.$name", $database + $default);
            $config->set("cache.stores.$name", ['connection' => $name] + $config->get('cache.stores.unstale'));
            Cache::store($name)->remember($name, 600, static fn () => 1);
            Cache::purge($name);
            \gc_collect_cycles(); // now its connection can be taken by others
        }
        same([1, 0], [$site->redis()->exists('shop:zero'), $site->redis()->exists('shop:one')]);
        $redis = $site->redis();
        $redis->select(1);
        $redis->flushDB();
    }),
    'a connection that does not exist, and a cluster' => $with(static function (Site $site, Application $app): void {
        $config = $app['config'];
        $refused = static fn (callable $call): string => throws(\InvalidArgumentException::class, $call)->getMessage();
        $config->set('cache.stores.shop', ['connection' => 'nope'] + $config->get('cache.stores.unstale'));
        same('the cache store shop: database.redis has no connection nope with a host', $refused(static fn () => Cache::store('shop')));
        $config->set('database.redis.clusters', ['many' => [['host' => '127.0.0.1', 'port' => $site->port]]]);
        $config->set('cache.stores.unstale.connection', 'many');
        $text = 'the cache store unstale: database.redis has no connection many with a host, but a cluster: '
            . 'name the store unstale, and bind Unstale\Cache in a provider';
        same($text, $refused(static fn () => Cache::store('unstale')));
        same($text, $refused(static fn () => $app->make(\Unstale\Cache::class)));
        $config->set('cache.stores.unstale', null);
        $text = 'config/cache.php has no store unstale, which Unstale\Cache is for';
        same($text, $refused(static fn () => $app->make(\Unstale\Cache::class)));
    }),
    'the store unstale uses the service' => $with(static function (Site $site, Application $app) use ($never): void {
        $app['config']->set('cache.stores.unstale.connection', 'nope');
        $app->instance(\Unstale\Cache::class, $site->cache());
        same(100, Cache::remember('product:1', 600, static fn () => $site->price()));
        same(100, $app->make(\Unstale\Cache::class)->fetch(new Read('shop:product:1', 1000), $never));
    }),
    'events' => $with(static function (Site $site, Application $app): void {
        $seen = [];
        $app['events']->listen([CacheHit::class, CacheMissed::class], static function (object $event) use (&$seen): void {
            $seen[] = [\class_basename($event), $event->storeName, $event->key];
        });
        Cache::remember('a', 60, static fn () => 1);
        Cache::remember('a', 60, static fn () => 1);
        same([['CacheMissed', 'unstale', 'a'], ['CacheHit', 'unstale', 'a']], $seen);
    }),
    'a row commits with the change' => $with(static function (Site $site, Application $app): void {
        $outbox = $app->make(Outbox::class);
        DB::transaction(static function () use ($outbox, $site): void {
            DB::update('UPDATE products SET price_cents = 200 WHERE id = 1');
            $outbox->enqueue($site->product());
            $outbox->enqueue([new Invalidation('product', '18446744073709551615')]);
            same(['1', '18446744073709551615'], DB::table('cache_outbox')->orderBy('id')->pluck('entity_id')->all());
        });
        same(200, $site->price());
    }),
    'a rollback of a nested transaction removes its rows, and keeps others' => $with(static function (Site $site, Application $app): void {
        $outbox = $app->make(Outbox::class);
        DB::transaction(static function () use ($outbox, $site): void {
            $outbox->enqueue($site->product());
            throws(\DomainException::class, static fn () => DB::transaction(static function () use ($outbox): void {
                $outbox->enqueue(new Invalidation('product', 2));
                throw new \DomainException();
            }));
            same(['1'], DB::table('cache_outbox')->pluck('entity_id')->all());
        });
    }),
    'without a transaction it throws' => $with(static function (Site $site, Application $app): void {
        throws(\LogicException::class, static fn () => $app->make(Outbox::class)->enqueue($site->product()));
    }),
    'inTransaction returns the result and the token' => $with(static function (Site $site, Application $app): void {
        $outbox = $app->make(Outbox::class);
        $committed = false;
        $done = $outbox->inTransaction(static function (Transaction $tx) use ($site, $outbox, &$committed): string {
            DB::afterCommit(static function () use (&$committed): void {
                $committed = true;
            });
            $tx->enqueue($site->product());
            same('', $outbox->inTransaction(static fn (Transaction $tx) => $tx->enqueue($site->product()))->token);
            return 'x';
        });
        same(['x', true], [$done->result, $committed]);
        same(1, Token::parse($done->token)->runs[0][1]);
        $site->settle();
        same(1, $app->make(\Unstale\Cache::class)->fetch(new Read('shop:product:1', 1000), static fn () => 1, token: $done->token));
    }),
    'inTransaction repeats after a lock wait timeout' => $with(static function (Site $site, Application $app): void {
        $other = $site->mysql->connect();
        $other->beginTransaction();
        $other->exec('UPDATE products SET price_cents = 150 WHERE id = 1');
        DB::statement('SET innodb_lock_wait_timeout = 1');
        $tries = 0;
        $done = $app->make(Outbox::class)->inTransaction(static function (Transaction $tx) use ($site, $other, &$tries): void {
            if (++$tries === 2) {
                $other->rollBack();
            }
            $tx->enqueue($site->product());
            DB::update('UPDATE products SET price_cents = 200 WHERE id = 1');
        }, 3);
        same(2, $tries);
        same(1, Token::parse($done->token)->runs[0][1]);
        same(200, $site->price());
    }),
    'the code of README.md' => $with(static function (Site $site, Application $app) use ($never): void {
        $app['config']->set('cache.stores.unstale.prefix', '');
        $site->pdo->exec('INSERT INTO products VALUES (42, 4990)');
        $load = static fn (int $id) => ['cents' => $site->price($id)];
        require __DIR__ . '/docs-laravel.php';
        same(['cents' => 4990], $page);
        same(1, Token::parse($token)->runs[0][1]);
        same(3990, $site->price(42));
    }),
];

foreach ($loads as $name => $load) {
    $tests["$name: a value is loaded once"] = $with(static function (Site $site) use ($load, $never): void {
        same(['cents' => 100], $load('product:1', static fn () => ['cents' => $site->price()]));
        same(['cents' => 100], $load('product:1', $never));
        same(1, $site->redis()->exists('shop:product:1'));
    });
    $tests["$name: a change during the load is not overwritten"] = $with(static function (Site $site) use ($load): void {
        same(100, $load('product:1', static function () use ($site): int {
            $price = $site->price();
            $site->change(200);
            return $price;
        }));
        same(200, $load('product:1', static fn () => $site->price()));
        $site->change(300);
        same(300, $load('product:1', static fn () => $site->price()));
    });
}

return $tests;
