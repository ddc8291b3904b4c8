<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Invalidation;
use Unstale\Options;
use Unstale\Outbox;
use Unstale\Tests\MySQL;
use Unstale\Tests\Process;
use Unstale\Tests\RedisServer;

/** A MySQL, a Redis and a worker for the tests of this folder. */
final class Site
{
    private const MAP = <<<'YAML'
        version: 1
        entities:
          product: {keys: ["shop:product:{id}"], tags: ["shop:product-{id}"]}

        YAML;

    public readonly MySQL $mysql;
    public readonly int $port;
    public readonly \PDO $pdo;

    private readonly string $folder;
    private readonly RedisServer $server;

    /** @var resource */
    private $worker;

    public function __construct()
    {
        $this->folder = \sys_get_temp_dir() . '/unstale-frameworks-' . \bin2hex(\random_bytes(6));
        \mkdir($this->folder);
        \register_shutdown_function($this->stop(...));
        $this->mysql = new MySQL();
        $this->mysql->database('shop');
        $this->pdo = $this->mysql->connect();
        $this->pdo->exec('CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)');
        $this->server = new RedisServer();
        $this->port = $this->server->port;
        \file_put_contents("$this->folder/map.yaml", self::MAP);
        $options = ['--map', "$this->folder/map.yaml", '--mysql-dsn', $this->mysql->goDSN('shop')];
        $options = [...$options, '--redis-url', $this->server->url(), '--log-level', 'error'];
        $this->worker = Process::start("$this->folder/log", MySQL::UNSTALE, 'run', '--listen', '-', ...$options);
    }

    public function stop(): void
    {
        isset($this->worker) && Process::kill($this->worker);
        \exec('rm -rf ' . \escapeshellarg($this->folder));
    }

    /** Kills Redis, and starts it without data. */
    public function restart(): void
    {
        $this->server->kill();
        $this->server->start();
    }

    /** Empties all, and adds a product that costs 100. */
    public function clear(): void
    {
        $this->settle();
        foreach ($this->redis()->keys('*') as $key) {
            // Without its beacon, the worker would repeat earlier UNLINKs at some later time.
            \str_starts_with($key, 'unstale:') || $this->redis()->unlink($key);
        }
        $this->pdo->exec('DELETE FROM products');
        $this->pdo->exec('INSERT INTO products VALUES (1, 100)');
    }

    public function redis(): \Redis
    {
        $redis = new \Redis();
        $redis->connect('127.0.0.1', $this->port);
        return $redis;
    }

    public function cache(mixed ...$options): Cache
    {
        return new Cache(Connections::url($this->server->url()), new Options(...$options + ['timeout' => 5000]));
    }

    public function product(): Invalidation
    {
        return new Invalidation('product', 1);
    }

    /** Returns the price that MySQL has. */
    public function price(int $id = 1): int
    {
        return (int) $this->pdo->query("SELECT price_cents FROM products WHERE id = $id")->fetchColumn();
    }

    /** Is another process that commits a price, after which the worker invalidates. */
    public function change(int $cents): void
    {
        $other = $this->mysql->connect();
        (new Outbox())->inTransaction($other, function ($tx) use ($other, $cents): void {
            $other->exec("UPDATE products SET price_cents = $cents WHERE id = 1");
            $tx->enqueue($this->product());
        });
        $this->settle();
    }

    /** Waits until the worker has processed all rows. */
    public function settle(): void
    {
        for ($end = \microtime(true) + 30; $this->rows() > 0; \usleep(5000)) {
            if (\microtime(true) > $end) {
                throw new \Exception('it takes more than 30 s; ' . \file_get_contents("$this->folder/log"));
            }
        }
    }

    public function rows(): int
    {
        return (int) $this->pdo->query('SELECT COUNT(*) FROM cache_outbox')->fetchColumn();
    }
}
