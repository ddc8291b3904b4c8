<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Invalidation;
use Unstale\Options;
use Unstale\Outbox;
use Unstale\Tests\MySQL;

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

    /** @var array<string, resource> */
    private array $servers = [];

    public function __construct()
    {
        $this->folder = \sys_get_temp_dir() . '/unstale-frameworks-' . \bin2hex(\random_bytes(6));
        \mkdir($this->folder);
        \register_shutdown_function($this->stop(...));
        $this->mysql = new MySQL();
        $this->mysql->database('shop');
        $this->pdo = $this->mysql->connect();
        $this->pdo->exec('CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)');
        $free = \stream_socket_server('tcp://127.0.0.1:0');
        $this->port = (int) \substr(\strrchr(\stream_socket_get_name($free, false), ':'), 1);
        \fclose($free);
        $this->startRedis();
        \file_put_contents("$this->folder/map.yaml", self::MAP);
        $options = ['--map', "$this->folder/map.yaml", '--mysql-dsn', "root@unix({$this->socket()})/shop"];
        $options = [...$options, '--redis-url', "redis://127.0.0.1:$this->port/0", '--log-level', 'error'];
        $this->start('worker', MySQL::UNSTALE, 'run', '--listen', '-', ...$options);
    }

    public function socket(): string
    {
        return \preg_replace('/.*unix_socket=([^;]*).*/', '$1', $this->mysql->dsn());
    }

    /** Kills Redis, and starts it without data. */
    public function restart(): void
    {
        $this->end($this->servers['redis']);
        $this->startRedis();
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
        return new Cache(new Connections($this->redis(...)), new Options(...$options + ['timeout' => 5000]));
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
        $this->until(fn () => $this->rows() === 0);
    }

    public function rows(): int
    {
        return (int) $this->pdo->query('SELECT COUNT(*) FROM cache_outbox')->fetchColumn();
    }

    public function until(callable $works): void
    {
        for ($end = \microtime(true) + 30; \microtime(true) < $end; \usleep(5000)) {
            try {
                if ($works()) {
                    return;
                }
            } catch (\RedisException) {
                // The server starts.
            }
        }
        throw new \Exception('it takes more than 30 s; ' . \file_get_contents("$this->folder/log"));
    }

    private function startRedis(): void
    {
        $this->start('redis', 'redis-server', '--port', (string) $this->port, '--bind', '127.0.0.1', '--save', '', '--dir', $this->folder);
        $this->until(fn () => $this->redis()->ping());
    }

    private function start(string $name, string ...$command): void
    {
        $log = ['file', "$this->folder/log", 'a'];
        $this->servers[$name] = \proc_open(['setpriv', '--pdeathsig', 'KILL', ...$command], [['file', '/dev/null', 'r'], $log, $log], $pipes);
    }

    public function stop(): void
    {
        \array_map($this->end(...), $this->servers);
        \exec('rm -rf ' . \escapeshellarg($this->folder));
    }

    /** @param resource $server */
    private function end($server): void
    {
        \proc_terminate($server, 9);
        \proc_close($server);
    }
}
