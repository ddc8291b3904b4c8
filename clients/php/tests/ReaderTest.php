<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;

/** A test of a cache on a real Redis. */
abstract class ReaderTest extends TestCase
{
    /** @var list<RedisServer|Proxy> */
    private array $started = [];

    /** @var list<array{string, array<string, mixed>}> */
    protected array $warnings = [];

    protected function tearDown(): void
    {
        \array_map(static fn (RedisServer|Proxy $one) => $one->stop(), $this->started);
        $this->started = [];
    }

    protected function start(string ...$options): RedisServer
    {
        return $this->started[] = new RedisServer(...$options);
    }

    protected function proxy(RedisServer $server): Proxy
    {
        return $this->started[] = new Proxy($server->port);
    }

    /** @param mixed ...$options of Options */
    protected function cache(RedisServer|Proxy|Connections $redis, mixed ...$options): Cache
    {
        $logger = new class ($this->warnings) {
            public function __construct(private array &$warnings)
            {
            }

            public function warning(string $message, array $context): void
            {
                $this->warnings[] = [$message, $context];
            }
        };
        $connections = $redis instanceof Connections ? $redis : Connections::url("redis://127.0.0.1:$redis->port");
        return new Cache($connections, new Options(...$options + ['timeout' => 2000, 'logger' => $logger]));
    }

    /** A loader that must not be called. */
    protected static function unexpected(): never
    {
        throw new \LogicException('nothing is to be loaded');
    }

    /** Waits until something holds. */
    protected static function eventually(string $what, callable $holds, int $seconds = 10): void
    {
        for ($end = \hrtime(true) + $seconds * 1_000_000_000; !$holds(); \usleep(200)) {
            if (\hrtime(true) > $end) {
                self::fail("not within $seconds s: $what");
            }
        }
    }
}
