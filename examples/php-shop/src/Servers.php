<?php

declare(strict_types=1);

namespace Shop;

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;

/** The connections of the shop, from MYSQL_SOCKET and REDIS_URL. */
final class Servers
{
    public static function mysql(): \PDO
    {
        $socket = \getenv('MYSQL_SOCKET') ?: throw new \RuntimeException('set MYSQL_SOCKET to the socket of MySQL');
        return new \PDO("mysql:unix_socket=$socket;dbname=shop;charset=utf8mb4", 'root', '');
    }

    public static function redis(): \Redis
    {
        $url = \parse_url(self::url());
        $redis = new \Redis();
        $redis->connect($url['host'], $url['port']);
        return $redis;
    }

    public static function cache(\PDO $mysql): Cache
    {
        ShopCache::map()->check(); // the environment names the keys
        // The timeout is for a machine that is as busy as that of the demo. The default is 100.
        return new Cache(Connections::url(self::url()), new Options(timeout: 1000, primary: $mysql));
    }

    private static function url(): string
    {
        return \getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379';
    }
}
