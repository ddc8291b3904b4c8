<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

use Psr\Cache\CacheItemInterface;
use Psr\Cache\InvalidArgumentException;
use Symfony\Contracts\Cache\CallbackInterface;
use Symfony\Contracts\Cache\ItemInterface;
use Symfony\Contracts\Cache\TagAwareCacheInterface;
use Unstale\Read;
use Unstale\Symfony\Pool;

if (\stream_resolve_include_path('Symfony/Component/Cache/autoload.php') === false) {
    return null;
}
require_once 'Symfony/Component/Cache/autoload.php';

$pool = static fn (Site $site): TagAwareCacheInterface => new Pool($site->cache(), 'shop:', 600);
$never = static fn () => throw new \Exception('the callback must not run');

return [
    'a value is loaded once' => static function (Site $site) use ($pool, $never): void {
        same(['cents' => 100], $pool($site)->get('product:1', static fn () => ['cents' => $site->price()]));
        same(['cents' => 100], $pool($site)->get('product:1', $never, null, $metadata));
        same([], $metadata);
        $ttl = $site->redis()->pttl('shop:product:1');
        same(true, $ttl > 500_000 && $ttl <= 700_000, "PTTL $ttl");
    },
    'a change during the load is not overwritten' => static function (Site $site) use ($pool): void {
        $old = $pool($site)->get('product:1', static function () use ($site): int {
            $price = $site->price();
            $site->change(200);
            return $price;
        });
        same(100, $old);
        same(200, $pool($site)->get('product:1', static fn () => $site->price()));
    },
    'a read has the times and tags of the map' => static function (Site $site) use ($pool, $never): void {
        $read = new Read('shop:product:1', 60_000, jitter: 0.0, stale: 0, tags: ['shop:product-1']);
        same(100, $pool($site)->get($read, static fn () => $site->price()));
        same(100, $pool($site)->get($read, $never));
        $ttl = $site->redis()->pttl($read->key);
        same(true, $ttl > 50_000 && $ttl <= 60_000, "PTTL $ttl");
        same(true, \str_contains($site->redis()->get($read->key), 'shop:product-1'));
    },
    'expiresAfter and expiresAt are respected' => static function (Site $site) use ($pool): void {
        $times = [
            static fn (ItemInterface $item) => $item->expiresAfter(30),
            static fn (ItemInterface $item) => $item->expiresAfter(new \DateInterval('PT30S')),
            static fn (ItemInterface $item) => $item->expiresAt(new \DateTimeImmutable('+30 seconds')),
        ];
        foreach ($times as $i => $set) {
            $pool($site)->get("product:$i", static fn (ItemInterface $item) => $set($item)->getKey());
            $ttl = $site->redis()->pttl("shop:product:$i");
            same(true, $ttl > 20_000 && $ttl <= 30_001, "PTTL $i $ttl");
        }
    },
    'a value that has expired or is not to be saved is not stored' => static function (Site $site) use ($pool): void {
        same('a', $pool($site)->get('product:1', static fn (ItemInterface $item) => $item->expiresAfter(0) ? 'a' : ''));
        same('b', $pool($site)->get('product:1', static function (ItemInterface $item, bool &$save): string {
            $save = false;
            return 'b';
        }));
        same(false, $site->redis()->get('shop:product:1'));
        same('c', $pool($site)->get('product:1', static fn () => 'c'));
    },
    'tags of the callback' => static function (Site $site) use ($pool, $never): void {
        $load = static fn (ItemInterface $item) => $item->tag(['product-1', 'all']) ? $site->price() : 0;
        $pool($site)->get('product:1', $load); // makes the versions of the tags
        $pool($site)->get('product:1', $load);
        same(100, $pool($site)->get('product:1', $never));
        $site->pdo->exec('UPDATE products SET price_cents = 150'); // which nothing has enqueued
        same(true, $pool($site)->invalidateTags(['all']));
        same(150, $pool($site)->get('product:1', $load));
        $site->redis()->unlink('shop:product:1');
        $pool($site)->get('product:1', $load);
        $site->change(200); // the worker unlinks shop:product-1
        same(200, $pool($site)->get('product:1', $load));
    },
    'delete, also while a load runs' => static function (Site $site) use ($pool): void {
        $pool($site)->get('product:1', static fn () => 'a');
        same(true, $pool($site)->delete('product:1'));
        $pool($site)->get('product:1', static function () use ($site, $pool): string {
            $pool($site)->delete('product:1');
            return 'b';
        });
        same('c', $pool($site)->get('product:1', static fn () => 'c'));
    },
    'beta' => static function (Site $site) use ($pool): void {
        $pool($site)->get('product:1', static fn () => 'a');
        same('a', $pool($site)->get('product:1', static fn () => 'b', 1000.0));
        same('b', $pool($site)->get('product:1', static fn () => 'b', \INF));
        throws(InvalidArgumentException::class, static fn () => $pool($site)->get('product:1', static fn () => 'c', -1.0));
    },
    'bad keys and tags' => static function (Site $site) use ($pool): void {
        $refused = static fn (callable $call): string => throws(InvalidArgumentException::class, $call)->getMessage();
        same('a key is empty', $refused(static fn () => $pool($site)->get('', static fn () => 1)));
        same('a key is empty', $refused(static fn () => $pool($site)->delete('')));
        same('a tag is empty', $refused(static fn () => $pool($site)->invalidateTags([''])));
        same('a tag must be text, and is null', $refused(static fn () => $pool($site)->get('a', static fn (ItemInterface $item) => $item->tag([null]))));
    },
    'a lifetime without limit' => static function (Site $site): void {
        foreach ([0, -1, \PHP_INT_MAX] as $seconds) {
            $error = throws(\ValueError::class, static fn () => new Pool($site->cache(), 'shop:', $seconds));
            same("defaultLifetime is $seconds, wanted 1 to 31536000 seconds, which is a year", $error->getMessage());
        }
        $site->cache()->fetch(new Read('shop:product:1', 31_536_000 * 1000, stale: 0), static fn () => 1);
        same(1, (new Pool($site->cache(), 'shop:', 31_536_000))->get('product:1', static fn () => 1));
    },
    'null, false and objects' => static function (Site $site) use ($pool, $never): void {
        foreach ([null, false, [], 0, ''] as $i => $value) {
            same($value, $pool($site)->get("product:$i", static fn () => $value));
            same($value, $pool($site)->get("product:$i", $never));
        }
        $object = static fn () => (object) ['cents' => 1];
        same(['cents' => 1], $pool($site)->get('product:9', $object));
        same(['cents' => 1], $pool($site)->get('product:9', $never));
    },
    'an exception of the callback' => static function (Site $site) use ($pool): void {
        throws(\DomainException::class, static fn () => $pool($site)->get('product:1', static fn () => throw new \DomainException()));
        same(1, $pool($site)->get('product:1', static fn () => 1));
    },
    'a class as a callback' => static function (Site $site) use ($pool): void {
        $callback = new class () implements CallbackInterface {
            public function __invoke(CacheItemInterface $item, bool &$save): mixed
            {
                return $item->expiresAfter(60)->getKey();
            }
        };
        same('shop:product:1', $pool($site)->get('product:1', $callback));
    },
    'reset runs the loads that were put off' => static function (Site $site): void {
        $pool = new Pool($site->cache(later: true));
        $read = new Read('shop:product:1', 1, jitter: 0.0, stale: 600_000);
        $pool->get($read, static fn () => 'old');
        \usleep(3000); // so long is the value fresh, by the clock of Redis
        same('old', $pool->get($read, static fn () => 'new'));
        $pool->reset();
        same(true, \str_contains($site->redis()->get($read->key), '"new"'));
    },
    'the code of README.md' => static function (Site $site): void {
        $cache = $site->cache();
        $repository = new class ($site) {
            public function __construct(private readonly Site $site)
            {
            }

            public function page(int $id): array
            {
                return ['id' => $id, 'cents' => $this->site->price(1)];
            }
        };
        require __DIR__ . '/docs-symfony.php';
        same([['id' => 42, 'cents' => 100], $page], [$page, $same]);
    },
    'the services of README.md' => static function (Site $site): void {
        if (!\stream_resolve_include_path('Symfony/Component/DependencyInjection/autoload.php')) {
            return;
        }
        require_once 'Symfony/Component/DependencyInjection/autoload.php';
        require_once 'Symfony/Component/Config/autoload.php';
        require_once 'Symfony/Component/Yaml/autoload.php';
        $_ENV['REDIS_URL'] = "redis://127.0.0.1:$site->port/0";
        $container = new \Symfony\Component\DependencyInjection\ContainerBuilder();
        $locator = new \Symfony\Component\Config\FileLocator(__DIR__);
        (new \Symfony\Component\DependencyInjection\Loader\YamlFileLoader($container, $locator))->load('services.yaml');
        $shop = new class (null) {
            public function __construct(public ?TagAwareCacheInterface $shopCache)
            {
            }
        };
        $container->register('shop', $shop::class)->setAutowired(true)->setPublic(true);
        $container->compile(true);
        same(Pool::class, $container->get('shop')->shopCache::class);
        same(100, $container->get('shop')->shopCache->get('product:1', static fn () => $site->price()));
        same(1, $site->redis()->exists('zahraah:prod:product:1'));
    },
];
