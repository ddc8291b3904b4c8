<?php

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Read;

/** Redis that is away, hangs, was left by its workers or is a replica; Sentinel, Cluster and TLS. */
final class ServersTest extends ReaderTest
{
    private static function read(): Read
    {
        return new Read('k', 60_000);
    }

    private static function of(mixed $value): \Closure
    {
        return static fn (): mixed => $value;
    }

    /** Returns how long a call takes, in milliseconds. */
    private static function took(callable $call): float
    {
        $begun = \hrtime(true);
        $call();
        return (\hrtime(true) - $begun) / 1e6;
    }

    public function testWithoutRedisEachCallLoadsAtOnceAndItComesBack(): void
    {
        $server = $this->start();
        $cache = $this->cache($server, timeout: 200, pause: 50);
        self::assertSame('stored', $cache->fetch(self::read(), self::of('stored')));
        $server->kill();
        for ($i = 0; $i < 20; $i++) {
            self::assertSame('loaded', $cache->fetch(self::read(), self::of('loaded')));
        }
        self::assertSame('loaded', $this->cache($server)->fetch(self::read(), self::of('loaded'))); // a new process
        self::assertNotNull($cache->healthy());
        self::assertContains('Redis is away: every call loads', \array_column($this->warnings, 0));
        $server->start();
        self::eventually('a value is stored', static function () use ($cache): bool {
            return $cache->fetchResult(self::read(), self::of('again'))->source === 'redis';
        });
        self::assertNull($cache->healthy());
        self::assertContains('Redis is back', \array_column($this->warnings, 0));
    }

    public function testARedisThatHangsCostsOneTimeoutPerPause(): void
    {
        $server = $this->start();
        $cache = $this->cache($server, timeout: 100, pause: 60_000);
        $cache->fetch(self::read(), self::of('stored'));
        $server->signal(\SIGSTOP);
        $load = static fn (): mixed => self::assertSame('loaded', $cache->fetch(self::read(), self::of('loaded')));
        $first = self::took($load);
        self::assertGreaterThan(90, $first);
        self::assertLessThan(2000, $first);
        self::assertLessThan(90, self::took(static function () use ($load): void {
            for ($i = 0; $i < 50; $i++) {
                $load();
            }
        }));
        self::assertStringStartsWith('Redis has not answered', $cache->healthy()->getMessage());
        $server->signal(\SIGCONT);
    }

    public function testARedisThatHangsCostsOneTimeoutForAnyNumberOfKeysAtEachStep(): void
    {
        $reads = \array_map(static fn (int $i): Read => new Read("k$i", 60_000, tags: ["t$i"]), \range(1, 50));
        $load = static fn (array $missing): array => \array_fill_keys(\array_column($missing, 'key'), 1);
        foreach (['read', 'lease', 'fill'] as $step) {
            $server = $this->start();
            $proxy = $this->proxy($server);
            $cache = $this->cache($proxy, timeout: 100, pause: 60_000);
            $step === 'read' && $server->signal(\SIGSTOP);
            $step === 'lease' && $proxy->first($server->port, 'lock:hold', 'CLIENT', 'PAUSE', '60000');
            $begun = \hrtime(true);
            $values = $cache->fetchMany($reads, static function (array $missing) use ($server, $load, $step, &$begun): array {
                if ($step === 'fill') {
                    $server->signal(\SIGSTOP);
                    $begun = \hrtime(true);
                }
                return $load($missing);
            });
            $waits = (\hrtime(true) - $begun) / 1e6;
            self::assertCount(50, $values);
            self::assertGreaterThan(90, $waits, $step);
            self::assertLessThan(1000, $waits, $step); // each reply has 100 ms in phpredis
        }
    }

    public function testABlackHoleThatTakesNoConnectionsCostsOneTimeout(): void
    {
        $server = $this->start('--tcp-backlog', '1');
        $server->signal(\SIGSTOP);
        $cache = $this->cache($server, timeout: 100, pause: 60_000);
        $waits = self::took(static fn () => $cache->fetch(self::read(), self::of('loaded')));
        self::assertLessThan(2000, $waits);
        self::assertLessThan(90, self::took(static fn () => $cache->fetch(self::read(), self::of('loaded'))));
        $server->signal(\SIGCONT);
    }

    public function testALateAnswerIsNotThatOfTheNextCommand(): void
    {
        $server = $this->start();
        $cache = $this->cache($server, timeout: 50, pause: 1);
        $cache->fetch(self::read(), self::of('first'));
        $cache->fetch(new Read('other', 60_000), self::of('second'));
        $server->signal(\SIGSTOP);
        self::assertSame('loaded', $cache->fetch(self::read(), self::of('loaded')));
        $server->signal(\SIGCONT);
        self::eventually('the value of the other key', static function () use ($cache): bool {
            $value = $cache->fetch(new Read('other', 60_000), self::of('loaded'));
            self::assertContains($value, ['second', 'loaded']);
            return $value === 'second';
        });
    }

    public function testALargeValueForARedisThatHangsDoesNotWaitLonger(): void
    {
        $server = $this->start();
        $cache = $this->cache($server, timeout: 100, pause: 60_000);
        $waits = self::took(static fn () => $cache->fetch(self::read(), static function () use ($server): string {
            $server->signal(\SIGSTOP);
            return \str_repeat('x', 16 << 20);
        }));
        self::assertLessThan(3000, $waits);
        $server->signal(\SIGCONT);
    }

    public function testAConnectionThatWasIdleAndHasEndedIsReplacedWithoutALoad(): void
    {
        $server = $this->start();
        $cache = $this->cache($server);
        $cache->fetch(self::read(), self::of('stored'));
        $server->admin()->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        self::assertSame('stored', $cache->fetch(self::read(), self::unexpected(...)));
        $server->admin()->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        self::assertTrue($cache->delete(['k']));
        self::assertNull($cache->healthy());
    }

    public function testAProcessThatWasForkedHasAConnectionOfItsOwn(): void
    {
        $server = $this->start();
        $cache = $this->cache($server);
        $cache->fetch(self::read(), self::of('stored'));
        $child = \pcntl_fork();
        if ($child === 0) {
            for ($i = 0; $i < 200; $i++) {
                $cache->fetch(new Read("child $i", 60_000), self::of($i));
            }
            \posix_kill(\getmypid(), \SIGKILL);
        }
        for ($i = 0; $i < 200; $i++) {
            self::assertSame('stored', $cache->fetch(self::read(), self::unexpected(...)));
        }
        \pcntl_waitpid($child, $status);
        self::assertSame('199', \json_encode($server->stored('child 199')['v']));
    }

    /** Returns a cache that knows a server and has a value there, and the server that new connections lead to. */
    private function moved(mixed ...$options): array
    {
        [$old, $new] = [$this->start(), $this->start()];
        $proxy = $this->proxy($old);
        $old->beat();
        $cache = $this->cache($proxy, ...$options, source: 'shop');
        $cache->fetch(self::read(), self::of('old'));
        $proxy->rule($new->port);
        return [$old, $new, $cache];
    }

    public function testAServerThatWorkersHaveLeftIsNotUsedIfANewConnectionLeadsToThem(): void
    {
        [$old, $new, $cache] = $this->moved();
        $old->beat(3500);
        $new->beat();
        $waits = self::took(static fn () => self::eventually('a load', static function () use ($cache): bool {
            return $cache->fetch(self::read(), self::of('new')) === 'new';
        }));
        self::assertLessThan(5000, $waits);
        self::assertSame('new', $cache->fetch(self::read(), self::unexpected(...)));
        self::assertSame([1, 1], [$new->admin()->exists('k'), $cache->stats()['strays']]);
        $new->beat(3500); // no worker runs anywhere
        $calls = $new->calls('unlink');
        self::eventually('a question', static function () use ($cache, $new, $calls): bool {
            self::assertSame('new', $cache->fetch(self::read(), self::unexpected(...)));
            return $new->calls('unlink') > $calls;
        });
        self::assertSame('new', $cache->fetch(self::read(), self::unexpected(...)));
        self::assertSame(1, $cache->stats()['strays']);
    }

    public function testAServerIsNotUsedIfWorkersHaveMovedWrittenAndEnded(): void
    {
        [$old, $new, $cache] = $this->moved();
        $old->beat(9000);
        $new->beat(5000);
        self::eventually('a load', static fn (): bool => $cache->fetch(self::read(), self::of('new')) === 'new');
        self::assertSame(1, $new->admin()->exists('k'));
    }

    public function testTheFirstPipelineOfEachConnectionAsksInFrontOfItsReads(): void
    {
        [$old, $new] = [$this->start(), $this->start()];
        $old->beat(9000);
        $old->store('k', ['v' => 'old']);
        $new->beat();
        $opened = 0;
        $connections = new Connections(static function (float $seconds, bool $isFresh) use ($old, $new, &$opened): \Redis {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', $isFresh ? $new->port : $old->port, $seconds); // as one of pconnect would
            $opened++;
            return $redis;
        });
        self::assertSame('new', $this->cache($connections)->fetch(self::read(), self::of('new')));
        self::assertSame([2, 1], [$opened, $new->admin()->exists('k')]);
    }

    public function testALeaseOfAServerThatWorkersHaveLeftIsNotUsed(): void
    {
        [$old, $new, $cache] = $this->moved();
        $other = new Read('other', 60_000);
        $value = $cache->fetch(new Read('first', 60_000), static function () use ($cache, $other, $old, $new): string {
            $old->beat(3500);
            $new->beat();
            return $cache->fetch($other, self::of('new'));
        });
        self::assertSame('new', $value);
        self::assertSame(0, $old->admin()->exists('other'));
        self::assertSame(1, $cache->stats()['strays']);
    }

    public function testAReplicaIsNotRead(): void
    {
        $master = $this->start('--repl-diskless-sync-delay', '0');
        $replica = $this->start('--replicaof', "127.0.0.1 $master->port");
        $master->beat();
        $this->cache($master)->fetch(self::read(), self::of('stored'));
        self::eventually('replication', static fn (): bool => $replica->admin()->exists('k', 'unstale:alive') === 2);
        $cache = $this->cache($replica, pause: 10);
        for ($i = 0; $i < 6; $i++) {
            self::assertSame('loaded', $cache->fetch(self::read(), self::of('loaded')));
        }
        self::assertStringContainsString('replica', $cache->healthy()->getMessage());
        $replica->admin()->rawCommand('REPLICAOF', 'NO', 'ONE');
        self::eventually('the value of the new master', static function () use ($cache): bool {
            return $cache->fetch(self::read(), self::of('loaded')) === 'stored';
        });
    }

    public function testAServerThatWorkersHaveLeftIsNotUsedWhileNewConnectionsLeadToAReplica(): void
    {
        [$old, $master] = [$this->start(), $this->start('--repl-diskless-sync-delay', '0')];
        $replica = $this->start('--replicaof', "127.0.0.1 $master->port");
        self::eventually('a link', static fn (): bool => $replica->admin()->info('replication')['master_link_status'] === 'up');
        $old->beat(9000);
        $old->store('k', ['v' => 'old']);
        $connections = new Connections(static function (float $seconds, bool $isFresh) use ($old, $replica): \Redis {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', $isFresh ? $replica->port : $old->port, $seconds);
            return $redis;
        });
        $cache = $this->cache($connections);
        for ($i = 0; $i < 3; $i++) {
            self::assertSame('new', $cache->fetch(self::read(), self::of('new')));
        }
        self::assertSame('old', $old->stored('k')['v']);
    }

    public function testSentinelTheReaderFollowsAFailover(): void
    {
        $master = $this->start('--repl-diskless-sync-delay', '0');
        $replica = $this->start('--replicaof', "127.0.0.1 $master->port");
        \file_put_contents(
            "$master->folder/sentinel.conf",
            "sentinel monitor shop 127.0.0.1 $master->port 1\nsentinel down-after-milliseconds shop 1500\n",
        );
        $sentinel = $this->start("$master->folder/sentinel.conf", '--sentinel');
        $away = 'redis://127.0.0.1:' . RedisServer::freePort();
        $cache = $this->cache(Connections::sentinel([$away, $sentinel->url()], 'shop'), timeout: 500, pause: 50);
        self::eventually('a stored value', static function () use ($cache): bool {
            return $cache->fetchResult(self::read(), self::of('stored'))->source === 'redis';
        });
        self::assertSame(1, $master->admin()->exists('k'));
        self::eventually('the sentinel knows the replica', static function () use ($sentinel, $replica): bool {
            return \str_contains(\json_encode($sentinel->admin()->rawCommand('SENTINEL', 'REPLICAS', 'shop')), ":$replica->port");
        });
        self::eventually('replication', static fn (): bool => $replica->admin()->exists('k') === 1);
        $master->kill();
        $other = new Read('other', 60_000);
        self::eventually('the new master has a value', static function () use ($cache, $other, $replica): bool {
            $cache->fetch($other, self::of('new'));
            try {
                return $replica->admin()->exists('other') === 1;
            } catch (\RedisException) { // Sentinel ends the connections to a new master
                return false;
            }
        }, 60); // a Sentinel that did not run for two seconds does nothing for the next 30
        self::assertSame('new', $cache->fetch($other, self::unexpected(...)));
        $unknown = $this->cache(Connections::sentinel([$sentinel->url()], 'none'));
        self::assertSame(1, $unknown->fetch(self::read(), self::of(1)));
        self::assertStringContainsString('no Sentinel names the master of none', $this->healthOf($unknown));
    }

    private function healthOf(Cache $cache): string
    {
        $cache->fetch(self::read(), self::of(1));
        return $cache->healthy()->getMessage();
    }

    public function testClusterKeysAndTagsOnSeveralMasters(): void
    {
        $nodes = [$this->start('--cluster-enabled', 'yes'), $this->start('--cluster-enabled', 'yes')];
        $nodes[0]->admin()->rawCommand('CLUSTER', 'ADDSLOTSRANGE', 0, 8191);
        $nodes[1]->admin()->rawCommand('CLUSTER', 'ADDSLOTSRANGE', 8192, 16383);
        $nodes[1]->admin()->rawCommand('CLUSTER', 'SET-CONFIG-EPOCH', 2);
        $nodes[0]->admin()->rawCommand('CLUSTER', 'MEET', '127.0.0.1', $nodes[1]->port);
        foreach ($nodes as $node) {
            self::eventually('the cluster has formed', static fn (): bool => \preg_match(
                '/cluster_state:ok.*cluster_known_nodes:2/s',
                $node->admin()->rawCommand('CLUSTER', 'INFO'),
            ) === 1);
        }
        $connections = static fn () => Connections::cluster(["127.0.0.1:{$nodes[0]->port}"]);
        $cache = $this->cache($connections());
        $reads = \array_map(static fn (int $i): Read => new Read("key:$i", 60_000, tags: ['a', 'b']), \range(0, 19));
        foreach ($reads as $i => $read) {
            $cache->fetch($read, self::of($i));
        }
        foreach ($reads as $i => $read) {
            self::assertSame($i, $cache->fetch($read, self::unexpected(...)));
        }
        self::assertSame(\range(0, 19), \array_values($cache->fetchMany($reads, self::unexpected(...))));
        $sizes = \array_map(static fn (RedisServer $node): int => $node->admin()->dbSize(), $nodes);
        self::assertGreaterThan(0, \min($sizes));
        self::assertSame(22, \array_sum($sizes));
        self::assertTrue($cache->delete([], ['a']));
        self::assertSame(100, $cache->fetch($reads[0], self::of(100)));
        $nodes[1]->kill();
        $quick = $this->cache($connections(), timeout: 100);
        self::assertLessThan(5000, self::took(static function () use ($quick, $reads): void {
            foreach ($reads as $read) {
                $quick->fetch($read, self::of(-1));
            }
        }));
    }

    public function testTLSAndAPassword(): void
    {
        $server = $this->start();
        $port = RedisServer::freePort();
        [$key, $cert] = ["$server->folder/key.pem", "$server->folder/cert.pem"];
        \exec("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
            . " -keyout $key -out $cert 2>/dev/null");
        $server->admin()->rawCommand('CONFIG', 'SET', 'tls-cert-file', $cert, 'tls-key-file', $key, 'tls-ca-cert-file', $cert, 'tls-auth-clients', 'no', 'tls-port', $port, 'requirepass', 's:cret/');
        $url = 'rediss://:' . \rawurlencode('s:cret/') . "@127.0.0.1:$port/1";
        foreach ([false, true] as $isPersistent) {
            $cache = $this->cache(Connections::url($url, $isPersistent, ['cafile' => $cert]));
            $cache->fetch(self::read(), self::of('stored'));
            self::assertSame('stored', $cache->fetch(self::read(), self::unexpected(...)));
        }
        $server->admin()->auth('s:cret/');
        $server->admin()->select(1);
        self::assertSame(['k'], $server->admin()->keys('*'));
        $stranger = $this->cache(Connections::url($url));
        self::assertSame('loaded', $stranger->fetch(self::read(), self::of('loaded')));
        self::assertStringNotContainsString('cret', $this->healthOf($stranger));
        $wrong = $this->cache(Connections::url("redis://:wrong@127.0.0.1:$server->port"));
        self::assertSame('loaded', $wrong->fetch(self::read(), self::of('loaded')));
        self::assertStringContainsString('password', $this->healthOf($wrong));
    }

    public function testASocketOfUnix(): void
    {
        $path = \sys_get_temp_dir() . '/unstale-' . \bin2hex(\random_bytes(6));
        $server = $this->start('--unixsocket', $path);
        $cache = $this->cache(Connections::url("unix://$path"));
        $cache->fetch(self::read(), self::of('stored'));
        self::assertSame('stored', $server->stored('k')['v']);
    }

    public function testAPersistentConnectionIsKeptAndAskedAgain(): void
    {
        $server = $this->start();
        $ids = [];
        foreach ([1, 2] as $request) {
            $cache = $this->cache(Connections::url($server->url(), true));
            $cache->fetch(self::read(), self::of(1));
            $ids[] = \preg_match_all('/^id=(\d+)/m', $server->admin()->rawCommand('CLIENT', 'LIST'), $found) ? $found[1] : [];
            unset($cache);
        }
        self::assertSame($ids[0], $ids[1]);
        self::assertGreaterThanOrEqual(2, $server->calls('hgetall'));
    }

    public function testConnectionsThatCannotBeUsedAreRefused(): void
    {
        $server = $this->start();
        $connect = static function () use ($server): \Redis {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', $server->port);
            return $redis;
        };
        $shared = $connect();
        $set = static fn (int $option, mixed $value): \Closure => static function () use ($connect, $option, $value): \Redis {
            $redis = $connect();
            $redis->setOption($option, $value);
            return $redis;
        };
        $refused = [
            'OPT_PREFIX' => $set(\Redis::OPT_PREFIX, 'app:'),
            'OPT_SERIALIZER' => $set(\Redis::OPT_SERIALIZER, \Redis::SERIALIZER_PHP),
            'OPT_COMPRESSION' => $set(\Redis::OPT_COMPRESSION, \Redis::COMPRESSION_LZF),
            'must return a connected' => static fn (): ?\Redis => null,
            'must return a connected \RedisCluster' => null,
        ];
        foreach ($refused as $text => $open) {
            try {
                $connections = $open === null ? new Connections($connect, 'c', true) : new Connections($open);
                $this->cache($connections)->fetch(self::read(), self::of(1));
                self::fail("$text is refused");
            } catch (\LogicException $e) {
                self::assertStringContainsString($text, $e->getMessage());
            }
        }
        $cache = $this->cache(new Connections(static fn (): \Redis => $shared), pause: 1);
        $cache->fetch(self::read(), self::of(1));
        $server->admin()->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        try {
            $cache->fetch(self::read(), self::of(1));
            self::fail('the same connection is refused');
        } catch (\LogicException $e) {
            self::assertStringContainsString('a new connection each time', $e->getMessage());
        }
        foreach (['http://x', 'redis:', 'x'] as $url) {
            try {
                Connections::url($url);
                self::fail("$url is refused");
            } catch (\ValueError $e) {
                self::assertStringStartsWith('the URL of Redis must begin with', $e->getMessage());
            }
        }
    }
}
