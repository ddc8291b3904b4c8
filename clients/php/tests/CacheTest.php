<?php

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Alive;
use Unstale\Cache;
use Unstale\Connections;
use Unstale\Load;
use Unstale\Options;
use Unstale\Read;
use Unstale\Shared;

/**
 * What a reader does by docs/protocol.md, on a real Redis: also the faults that the judge of readers
 * does not find, see lab/conform/README.md.
 */
final class CacheTest extends ReaderTest
{
    private static RedisServer $server;
    private \Redis $redis;

    public static function setUpBeforeClass(): void
    {
        self::$server = new RedisServer();
    }

    public static function tearDownAfterClass(): void
    {
        self::$server->stop();
    }

    protected function setUp(): void
    {
        self::clearAPCu();
        $this->redis = self::$server->admin();
        $this->redis->flushAll();
        $this->redis->rawCommand('CONFIG', 'RESETSTAT');
    }

    /** @param mixed ...$options */
    private function open(mixed ...$options): Cache
    {
        return $this->cache(self::$server, ...$options);
    }

    /** Returns the cache of a process on another machine, which shares no APCu. */
    private function other(): Cache
    {
        self::clearAPCu();
        return $this->open();
    }

    private static function clearAPCu(): void
    {
        if (\function_exists('apcu_enabled') && \apcu_enabled()) {
            \apcu_clear_cache();
        }
    }

    private static function of(mixed $value): \Closure
    {
        return static fn (): mixed => $value;
    }

    /** @return array{mixed, string, bool} */
    private static function all(\Unstale\Result $result): array
    {
        return [$result->value, $result->source, $result->stale];
    }

    public function testStoresAnEntryUnderALeaseAndFindsIt(): void
    {
        $cache = $this->open();
        $read = new Read('shop:product:42', 60_000, tags: ['category:7']);
        $before = self::$server->time();
        $lease = '';
        $result = $cache->fetchResult($read, function () use (&$lease): array {
            $lease = $this->redis->get('lock:fill:{shop:product:42}');
            return ['id' => 42, 'price' => 1.0];
        });
        self::assertSame([['id' => 42, 'price' => 1.0], 'loader', false], self::all($result));
        self::assertSame([['id' => 42, 'price' => 1.0], 'redis', false], self::all($cache->fetchResult($read, self::unexpected(...))));
        $entry = self::$server->stored('shop:product:42');
        self::assertMatchesRegularExpression('/^[0-9a-f]{32}:\d{16}$/', $lease);
        self::assertSame((int) \explode(':', $lease)[1], $entry['b']);
        self::assertSame(['category:7' => $this->redis->get('stamp:category:7')], $entry['t']);
        self::assertSame(6000, $entry['s'] - $entry['e']);
        self::assertGreaterThan(60_000 * 0.85 - 10_000, $entry['px'] - 6000);
        self::assertLessThanOrEqual(60_000 * 1.15, $entry['px'] - 6000);
        self::assertGreaterThanOrEqual(60_000 * 0.85 - 1, $entry['e'] - $before);
        self::assertLessThanOrEqual(60_000 * 1.15 + 10_000, $entry['e'] - $before);
        self::assertSame([], $this->redis->keys('lock:*'));
        $stats = $cache->stats();
        self::assertSame([1, 1, 1, 1], [$stats['hits'], $stats['misses'], $stats['loads'], $stats['sets']]);
        self::assertSame(['other' => ['hits' => 1, 'misses' => 1, 'stale' => 0]], $stats['reads']);
        self::assertNull($cache->healthy());
    }

    public function testAHitIsOneRoundTripWithOneCommand(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000, tags: ['a', 'b']);
        $cache->fetch($read, self::of(1));
        $this->redis->rawCommand('CONFIG', 'RESETSTAT');
        $cache->fetch($read, self::unexpected(...));
        self::assertSame([1, 0, 0], \array_map(self::$server->calls(...), ['mget', 'get', 'time']));
    }

    public function testTheQuestionIsInFrontOfReadsAndBehindScripts(): void
    {
        $monitor = \stream_socket_client('tcp://127.0.0.1:' . self::$server->port);
        \fwrite($monitor, "MONITOR\r\n");
        self::assertSame("+OK\r\n", \fgets($monitor));
        $this->open(source: 'shop')->fetch(new Read('k', 60_000, tags: ['a']), self::of(1));
        $this->redis->rawCommand('ECHO', 'the end');
        $names = [];
        while (!\str_contains($line = \fgets($monitor), '"the end"')) {
            if (!\str_contains($line, ' lua]')) {
                $names[] = \explode('"', $line)[1] . (\str_contains($line, 'probe') ? ' of the probe' : '');
            }
        }
        self::assertSame(['TIME', 'HGET', 'UNLINK of the probe', 'MGET'], \array_slice($names, 0, 4));
        self::assertSame(['TIME', 'EVALSHA', 'EVALSHA', 'TIME', 'HGET'], \array_slice($names, 4, 5)); // the first ends the wait
    }

    public function testTimesAreThoseOfRedisWhateverTheClockOfTheMachineSays(): void
    {
        $alive = new Alive('shop', false, new Shared('test:'));
        self::assertEqualsWithDelta(\microtime(true) * 1000, $alive->now(), 1000);
        self::assertSame([['TIME'], ['HGET', 'unstale:alive', 'shop']], $alive->question(null, false));
        $text = \json_encode(['t' => 1_700_000_000_000_000 - 2_900_000, 'lease' => 10_000]);
        self::assertSame(Alive::YOUNG, $alive->answer([['1700000000', '500'], $text]));
        self::assertEqualsWithDelta(1_700_000_000_000, $alive->now(), 1000);
        self::assertSame([], $alive->question(null, false));
        $alive->question(null, true);
        self::assertSame(Alive::OLD, $alive->answer([['1700000001', '0'], $text]));
        self::assertNotSame([], $alive->question(null, false)); // it is asked again at once
    }

    public function testATagVersionLivesAnHourLongerThanTheLongestEntryAndANegativeResultTwoMinutes(): void
    {
        $cache = $this->open();
        $day = 86_400_000;
        $read = new Read('none', $day, jitter: 0, stale: 1000, staleOnError: $day, tags: ['a']);
        self::assertNull($cache->fetch($read, self::of(null)));
        $entry = self::$server->stored('none');
        self::assertSame([1, null, false, false], [$entry['n'], $entry['v'], isset($entry['s']), isset($entry['o'])]);
        self::assertGreaterThan(110_000, $entry['px']);
        self::assertLessThanOrEqual(120_000, $entry['px']);
        $stamp = $this->redis->pttl('stamp:a');
        self::assertGreaterThan(2 * $day + 3_600_000 - 10_000, $stamp);
        self::assertLessThanOrEqual(2 * $day + 3_600_000, $stamp);
        self::assertSame([null, 'redis', false], self::all($cache->fetchResult($read, self::unexpected(...))));
        $cache->fetch(new Read('short', 5000, jitter: 0), self::of(null));
        self::assertLessThanOrEqual(5000, self::$server->stored('short')['px']);
        $cache->fetch(new Read('not kept', 5000, negative: 0), self::of(null));
        self::assertSame([], $this->redis->keys('*not kept*'));
    }

    public function testAnUnlinkDuringALoadKeepsItsValueOut(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $value = $cache->fetch($read, function (): string {
            self::$server->invalidate('k');
            return 'old';
        });
        self::assertSame(['old', false, 1], [$value, $this->redis->get('k'), $cache->stats()['refused']]);
        self::assertSame('new', $cache->fetch($read, self::of('new')));
        self::assertSame('new', $cache->fetch($read, self::unexpected(...)));
    }

    public function testAnUnlinkOfATagDuringALoadMakesItsValueAMiss(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000, tags: ['a']);
        $cache->fetch($read, function (): string {
            self::$server->invalidate('stamp:a');
            return 'old';
        });
        self::assertSame('new', $cache->fetch($read, self::of('new')));
        self::assertSame('new', $cache->fetch($read, self::unexpected(...)));
    }

    public function testATombstoneKeepsValuesOutOfKeysAndOfTags(): void
    {
        $cache = $this->open();
        $this->redis->mSet(['lock:hold:{k}' => '1', 'lock:hold:{stamp:a}' => '1']);
        self::assertSame(1, $cache->fetch(new Read('k', 60_000), self::of(1)));
        self::assertSame(2, $cache->fetch(new Read('tagged', 60_000, tags: ['a']), self::of(2)));
        self::assertEqualsCanonicalizing(['lock:hold:{k}', 'lock:hold:{stamp:a}'], $this->redis->keys('*'));
    }

    public function testTagsCountThatOnlyTheEntryHasAndTagsThatItLacks(): void
    {
        $cache = $this->open();
        $tagged = new Read('k', 60_000, tags: ['a']);
        $bare = new Read('k', 60_000);
        $cache->fetch($tagged, self::of('first'));
        self::assertSame('first', $cache->fetch($bare, self::unexpected(...)));
        self::assertSame(['k' => 'first'], $cache->fetchMany([$bare], self::unexpected(...)));
        $this->redis->unlink('stamp:a');
        self::assertSame('second', $cache->fetch($bare, self::of('second')));
        self::assertSame('third', $cache->fetch($tagged, self::of('third'))); // the entry has no tag
        self::assertSame('third', $cache->fetch($bare, self::unexpected(...)));
        self::$server->invalidate('stamp:a');
        self::assertSame('fourth', $cache->fetch($tagged, self::of('fourth')));
    }

    public function testNamesOfKeysWithBracesAndKeysWithoutALease(): void
    {
        $cache = $this->open();
        $leases = [];
        $load = function () use (&$leases): int {
            \array_push($leases, ...$this->redis->keys('lock:*'));
            return 1;
        };
        $keys = ['user:{1000}:cart', 'a{b}', 'a{{b}}', '{a}{b}', 'plain', '42'];
        foreach ($keys as $key) {
            $cache->fetch(new Read($key, 60_000), $load);
        }
        $names = \array_map(static fn (string $key): string => \str_contains($key, '{') ? $key : "{{$key}}", $keys);
        self::assertSame(\array_map(static fn (string $name): string => "lock:fill:$name", $names), $leases);
        foreach (['', '{a}', 'a}b', 'a{}b'] as $key) {
            self::assertSame(1, $cache->fetch(new Read($key, 60_000), $load));
        }
        self::assertSame(1, $cache->fetch(new Read('odd tag', 60_000, tags: ["\xff"]), $load));
        self::assertCount(6, $leases);
        self::assertSame(6, $this->redis->dbSize());
    }

    public function testEachLoadHasATokenOfItsOwn(): void
    {
        $cache = $this->open();
        $tokens = [];
        foreach (['a', 'b', 'a'] as $key) {
            $cache->fetch(new Read($key, 60_000), function (Load $load) use ($key, &$tokens): void {
                $tokens[\explode(':', $this->redis->get("lock:fill:{{$key}}"))[0]] = true;
                $load->skip();
            });
        }
        self::assertCount(3, $tokens);
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testEntriesOfOtherFormatsAndCodecsAndOtherTypesStay(): void
    {
        $cache = $this->open();
        self::$server->store('codec', ['c' => 'msgpack', 'v' => 'gaJpZCoK/w==']);
        self::$server->store('format', ['f' => 3, 'v' => 1]);
        $this->redis->rPush('list', 'x');
        foreach (['codec', 'format', 'list'] as $key) {
            $before = $this->redis->dump($key);
            $loads = 0;
            foreach ([1, 2] as $round) {
                foreach ([[], ['a']] as $tags) {
                    $value = $cache->fetch(new Read($key, 60_000, tags: $tags), function () use (&$loads): int {
                        return ++$loads;
                    });
                    self::assertSame($loads, $value);
                }
            }
            self::assertSame([4, $before], [$loads, $this->redis->dump($key)], $key);
        }
        self::assertSame([], $this->redis->keys('lock:*'));
    }

    public function testAnEntryThatCannotBeReadIsReplacedAndOneThatHasExpiredInRedisIsNotUsed(): void
    {
        $cache = $this->open();
        foreach (['', 'old', '{"e":1', '{"v":1}', "\xff\xfe"] as $i => $bytes) {
            $this->redis->set("k$i", $bytes);
            self::assertSame('new', $cache->fetch(new Read("k$i", 60_000), self::of('new')));
            self::assertSame('new', $cache->fetch(new Read("k$i", 60_000), self::unexpected(...)));
        }
        self::$server->store('k', ['e' => -1000, 'v' => 'old']);
        self::assertSame('new', $cache->fetch(new Read('k', 60_000), self::of('new')));
    }

    public function testAnotherReadersLoadIsWaitedFor(): void
    {
        $cache = $this->open();
        $this->redis->set('lock:fill:{k}', 'other:1', ['px' => 60_000]);
        $other = \pcntl_fork();
        if ($other === 0) {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', self::$server->port);
            while ((int) \substr($redis->info('commandstats')['cmdstat_evalsha'] ?? 'calls=0', 6) < 3) {
                \usleep(500);
            }
            $redis->multi()->set('k', '{"e":99999999999999,"v":"theirs"}')->del('lock:fill:{k}')->exec();
            \posix_kill(\getmypid(), \SIGKILL);
        }
        self::assertSame('theirs', $cache->fetch(new Read('k', 60_000), self::unexpected(...)));
        \pcntl_waitpid($other, $status);
    }

    public function testAValueThatOthersStoreBeforeTheLeaseIsCheckedToo(): void
    {
        $this->redis->set('stamp:a', 'now:1');
        $read = new Read('k', 60_000, tags: ['a']);
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy);
        $entry = static fn (string $version, string $value): string
            => "{\"e\":99999999999999,\"t\":{\"a\":\"$version\"},\"v\":\"$value\"}";
        $proxy->first(self::$server->port, 'lock:hold', 'SET', 'k', $entry('old:1', 'old'));
        self::assertSame('new', $cache->fetch($read, self::of('new')));
        self::$server->invalidate('k');
        $proxy->first(self::$server->port, 'lock:hold', 'SET', 'k', $entry('now:1', 'theirs'));
        self::assertSame('theirs', $cache->fetch($read, self::unexpected(...)));
        self::assertSame([], $this->redis->keys('lock:*'));
    }

    public function testAFifthHolderOfALeaseEndsTheWait(): void
    {
        $cache = $this->open(lease: 60_000);
        $this->redis->set('lock:fill:{k}', 'other:0', ['px' => 1_000_000]);
        $other = \pcntl_fork();
        if ($other === 0) {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', self::$server->port);
            $calls = static fn (): int => (int) \substr($redis->info('commandstats')['cmdstat_evalsha'] ?? 'calls=0', 6);
            for ($holder = 1; $holder < 5; $holder++) {
                for ($before = $calls(); $calls() < $before + 2;) {
                    \usleep(500);
                }
                $redis->set('lock:fill:{k}', "other:$holder", ['px' => 1_000_000 * ($holder + 1)]);
            }
            \posix_kill(\getmypid(), \SIGKILL);
        }
        self::assertSame('mine', $cache->fetch(new Read('k', 60_000), self::of('mine')));
        \pcntl_waitpid($other, $status);
        self::assertFalse($this->redis->get('k'));
        self::assertStringStartsWith('other:', $this->redis->get('lock:fill:{k}'));
    }

    public function testAfterTheTimeOfALeaseTheWaitEnds(): void
    {
        $cache = $this->open(lease: 50);
        $this->redis->set('lock:fill:{k}', 'other:0', ['px' => 60_000]);
        self::assertSame('mine', $cache->fetch(new Read('k', 60_000), self::of('mine')));
        self::assertFalse($this->redis->get('k'));
    }

    public function testAFailedLoadGivesTheLeaseBackAndAnUnstoredOneRemovesTheOldEntry(): void
    {
        $cache = $this->open();
        try {
            $cache->fetch(new Read('k', 60_000), static fn () => throw new \RuntimeException('the database is away'));
            self::fail('the error of the loader is thrown');
        } catch (\RuntimeException $e) {
            self::assertSame('the database is away', $e->getMessage());
        }
        self::assertSame([[], 1], [$this->redis->keys('*'), $cache->stats()['loadErrors']]);
        self::$server->store('other', ['e' => -1000, 'o' => 60_000, 'v' => 'old']);
        $cache->fetch(new Read('other', 60_000), static fn (Load $load) => $load->skip());
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testAValueWithoutJSONIsReturnedAndNotStored(): void
    {
        $cache = $this->open();
        self::assertSame("\xff", $cache->fetch(new Read('k', 60_000), self::of("\xff")));
        self::assertNan($cache->fetch(new Read('k', 60_000), self::of(\NAN)));
        self::assertSame([], $this->redis->keys('*'));
        self::assertSame(2, $cache->stats()['errors']);
        self::assertSame('a value cannot be stored', $this->warnings[0][0]);
        self::assertCount(1, $this->warnings);
    }

    public function testObjectsAreArraysAlsoForTheCallerThatHasLoadedThem(): void
    {
        $cache = $this->open();
        $date = new \DateTimeImmutable('2026-03-01T12:00:00Z');
        $value = $cache->fetch(new Read('k', 60_000), self::of(['at' => $date, 'map' => (object) [], 'text' => 'é/']));
        self::assertSame('2026-03-01 12:00:00.000000', $value['at']['date']);
        self::assertSame($value, $cache->fetch(new Read('k', 60_000), self::unexpected(...)));
        self::assertStringContainsString('"map":{},"text":"é/"', $this->redis->get('k'));
    }

    public function testStaleWhileRevalidateAtOnce(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000, stale: 60_000);
        self::$server->store('k', ['e' => -1000, 's' => 60_000, 'v' => 'old']);
        $this->redis->set('lock:fill:{k}', 'other:1');
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, self::unexpected(...))));
        $this->redis->del('lock:fill:{k}');
        $failing = static fn () => throw new \RuntimeException('the database is away');
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, $failing)));
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, self::unexpected(...)))); // a pause
        self::assertSame('new', $this->other()->fetch($read, self::of('new')));
        self::assertSame('new', $cache->fetch($read, self::unexpected(...)));
        self::assertSame([3, 1], [$cache->stats()['stale'], $cache->stats()['loads']]);
    }

    public function testStaleWhileRevalidateLater(): void
    {
        $cache = $this->open(later: true);
        $read = new Read('k', 60_000, stale: 60_000);
        self::$server->store('k', ['e' => -1000, 's' => 60_000, 'v' => 'old']);
        $loads = 0;
        $load = static function () use (&$loads): string {
            return 'new' . ++$loads;
        };
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, $load)));
        self::assertSame(['k' => 'old'], $cache->fetchMany([$read], static fn (): array => ['k' => $load()]));
        self::assertSame(0, $loads);
        $cache->finish();
        self::assertSame([1, 'new1'], [$loads, $cache->fetch($read, self::unexpected(...))]);
        self::$server->store('k', ['e' => -1000, 's' => 60_000, 'v' => 'old']);
        $cache->fetch($read, static fn () => throw new \RuntimeException('the database is away'));
        self::$server->store('k', ['v' => 'of another reader']);
        $cache->finish();
        self::assertSame('of another reader', $cache->fetch($read, self::unexpected(...)));
        self::$server->store('k', ['e' => -1000, 's' => 60_000, 'v' => 'old']);
        $cache->fetch($read, static fn () => throw new \RuntimeException('the database is away'));
        $cache->finish();
        self::assertSame([], $this->redis->keys('lock:*'));
    }

    public function testStaleOnErrorReplacesAFailedLoadUntilAnUnlink(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000, stale: 0, staleOnError: 60_000);
        $fails = static fn () => throw new \RuntimeException('the database is away');
        $old = ['e' => -1000, 'o' => 60_000, 'v' => 'old'];
        self::$server->store('k', $old);
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, $fails)));
        self::assertSame(['old', 'redis', true], self::all($cache->fetchResult($read, self::unexpected(...)))); // a pause
        self::assertSame(1, $cache->stats()['loads']);
        self::assertSame(['k' => 'old'], $this->other()->fetchMany([$read], $fails));
        foreach (
            [
            fn () => self::$server->invalidate('k'),
            fn () => self::$server->store('k', ['v' => 'another'] + $old),
            ] as $change
        ) {
            self::$server->store('k', $old);
            try {
                $this->other()->fetch($read, static function () use ($change, $fails): never {
                    $change();
                    $fails();
                });
                self::fail('the expired value is not that of Redis');
            } catch (\RuntimeException $e) {
                self::assertSame('the database is away', $e->getMessage());
            }
        }
    }

    public function testTagsThatOnlyTheLoaderNamesAreStoredFromTheSecondLoadOfAnyProcess(): void
    {
        $read = new Read('k', 60_000);
        $loads = 0;
        $load = static function (Load $load) use (&$loads): int {
            $load->tag('category:7', '8');
            return ++$loads;
        };
        self::assertSame(1, $this->open()->fetch($read, $load));
        $entry = self::$server->stored('k');
        self::assertSame([1, null, ['category:7', 8]], [$entry['e'], $entry['v'], \array_keys($entry['t'])]);
        self::assertSame(2, $this->open()->fetch($read, $load));
        self::assertSame(2, $this->open()->fetch($read, self::unexpected(...)));
        self::$server->invalidate('stamp:category:7');
        self::assertSame(3, $this->open()->fetch($read, $load));
        self::assertSame(3, $this->open()->fetch($read, self::unexpected(...)));
        self::$server->invalidate('k');
        self::assertSame(4, $this->open()->fetch($read, $load));
        self::assertSame(5, $this->open()->fetch($read, function (Load $load) use (&$loads): int {
            self::$server->invalidate('stamp:8'); // between the two
            $load->tag('category:7', '8');
            return ++$loads;
        }));
        self::assertSame(6, $this->open()->fetch($read, $load));
        self::assertSame(6, $this->open()->fetch($read, self::unexpected(...)));
        $this->open()->fetch(new Read('unknown', 1000), static fn (Load $load) => $load->tag(''));
        self::assertFalse($this->redis->get('unknown'));
    }

    public function testALoaderBoundsTheTTL(): void
    {
        $cache = $this->open();
        $read = new Read('k', 600_000, stale: 600_000, staleOnError: 600_000);
        $cache->fetch($read, static function (Load $load): int {
            $load->ttl(5000);
            return 1;
        });
        $entry = self::$server->stored('k');
        self::assertLessThanOrEqual(5000, $entry['px']);
        self::assertFalse(isset($entry['s']) || isset($entry['o']));
        $cache->fetch(new Read('none', 600_000), static fn (Load $load) => $load->ttl(0));
        self::assertFalse($this->redis->get('none'));
    }

    public function testFetchManyIsOneRoundTripAndOneLoadOfWhatIsMissing(): void
    {
        $cache = $this->open();
        $reads = \array_map(static fn (string $key): Read => new Read($key, 60_000, tags: ['all']), ['a', 'b', '42', 'a']);
        $cache->fetch($reads[1], self::of('b1'));
        $loaded = [];
        $load = static function (array $missing, Load $load) use (&$loaded): array {
            $loaded[] = \array_map(static fn (Read $read): string => $read->key, $missing);
            return ['a' => 'a1'];
        };
        $this->redis->rawCommand('CONFIG', 'RESETSTAT');
        self::assertSame(['a' => 'a1', 'b' => 'b1'], $cache->fetchMany($reads, $load)); // in the order of the reads
        self::assertSame([['a', '42']], $loaded);
        self::assertSame([1, 5], [self::$server->calls('mget'), self::$server->calls('evalsha')]); // 2 leases, a stamp, 2 fills
        self::assertEquals(['a' => 'a1', 'b' => 'b1'], $cache->fetchMany($reads, self::unexpected(...)));
        self::assertSame([], $cache->fetchMany([], self::unexpected(...)));
        self::assertEquals(['a' => 'a1'], $cache->fetchMany([$reads[0], new Read('e', 1, error: 'no')], self::of([])));
        try {
            $cache->fetchMany([new Read('x', 1000), new Read('y', 1000)], static fn () => throw new \RuntimeException('away'));
            self::fail('the error of the loader is thrown');
        } catch (\RuntimeException) {
            self::assertSame([], $this->redis->keys('lock:*'));
        }
    }

    public function testFetchManyWaitsForWhatOthersLoadAfterItHasLoadedTheRest(): void
    {
        $cache = $this->open();
        $this->redis->set('lock:fill:{a}', 'other:1', ['px' => 10_000]);
        $loaded = [];
        $values = $cache->fetchMany([new Read('a', 60_000), new Read('b', 60_000)], function (array $missing) use (&$loaded): array {
            $keys = \array_map(static fn (Read $read): string => $read->key, $missing);
            $loaded[] = $keys;
            self::$server->store('a', ['v' => 'theirs']);
            return \array_combine($keys, $keys);
        });
        self::assertEquals(['a' => 'theirs', 'b' => 'b'], $values);
        self::assertSame([['b']], $loaded);
    }

    public function testGetLoadsNothingAndDeleteStopsLoads(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000, tags: ['a']);
        self::assertNull($cache->get($read));
        $cache->fetch($read, self::of(1));
        self::assertSame([1, 'redis', false], self::all($cache->get($read)));
        self::assertTrue($cache->delete([], ['a']));
        self::assertNull($cache->get($read));
        $cache->fetch($read, function () use ($cache): int {
            self::assertTrue($cache->delete(['k', 'none', '{odd}']));
            return 2;
        });
        self::assertNull($cache->get($read));
        self::assertSame(1, $cache->stats()['refused']);
    }

    public function testALoaderThatFetchesItsOwnKeyIsAnErrorAtOnce(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $own = [
            static fn () => $cache->fetch($read, self::of(1)),
            static fn () => $cache->fetchMany([new Read('more', 1000), $read], self::of([])),
            static fn () => $cache->fetch(new Read('other', 1000), static fn () => $cache->fetch($read, self::of(1))),
        ];
        foreach ($own as $loader) {
            $begun = \hrtime(true);
            try {
                $cache->fetch($read, $loader);
                self::fail('the key is that of the loader');
            } catch (\LogicException $e) {
                self::assertSame('the loader of the key k fetches it, which would never end', $e->getMessage());
            }
            self::assertLessThan(5000, (\hrtime(true) - $begun) / 1e6); // a lease is for 10 s
            self::assertSame([], $this->redis->keys('*'));
        }
    }

    public function testAValueWhoseJSONThrowsAnythingIsReturnedAndNotStored(): void
    {
        $cache = $this->open();
        $odd = new class () implements \JsonSerializable {
            public function jsonSerialize(): never
            {
                throw new \TypeError('it has no JSON');
            }
        };
        self::assertSame($odd, $cache->fetch(new Read('k', 60_000), self::of($odd)));
        self::assertSame([[], 1], [$this->redis->keys('*'), $cache->stats()['errors']]);
        self::assertSame('it has no JSON', $this->warnings[0][1]['exception']->getMessage());
    }

    public function testALoggerThatThrowsFailsNothing(): void
    {
        $logger = new class () {
            public function warning(): never
            {
                throw new \Error('the disk is full');
            }
        };
        $file = \tempnam(\sys_get_temp_dir(), 'unstale-log-');
        $before = \ini_set('error_log', $file);
        try {
            self::assertSame("\xff", $this->open(logger: $logger)->fetch(new Read('k', 60_000), self::of("\xff")));
        } finally {
            \ini_set('error_log', (string) $before);
        }
        self::assertMatchesRegularExpression('/a value cannot be stored: .*the disk is full/', \file_get_contents($file));
        self::assertSame([], $this->redis->keys('*'));
        \unlink($file);
    }

    /** @dataProvider endings */
    public function testALoaderThatEndsTheProcessGivesTheLeaseBack(string $code): void
    {
        self::assertSame('loads', self::program(self::$server, "
            \$cache->fetchMany([new Read('a', 60_000), new Read('b', 60_000)], function () use (\$cache) {
                \$cache->fetch(new Read('c', 60_000), function () { echo 'loads'; $code; });
            });"));
        self::assertSame([], $this->redis->keys('*'));
    }

    /** @return list<list<string>> */
    public static function endings(): array
    {
        return [['exit'], ['str_repeat("x", PHP_INT_MAX - 100)'], ['set_time_limit(1); for (;;);'], ['require "none"']];
    }

    public function testAProcessThatIsForkedByALoaderKeepsItsLease(): void
    {
        self::program(self::$server, "\$cache->fetch(new Read('k', 60_000), function () {
            pcntl_fork() === 0 && exit;
            pcntl_wait(\$status);
            return 1;
        });");
        self::assertSame(['k'], $this->redis->keys('*'));
    }

    /** Runs code in a process of its own, and returns what it writes. */
    private static function program(RedisServer|Proxy $redis, string $code): string
    {
        $program = 'require ' . \var_export(\dirname(__DIR__) . '/autoload.php', true) . ';'
            . 'use Unstale\{Cache, Connections, Options, Read};'
            . "ini_set('display_errors', 0); ini_set('error_log', '/dev/null');"
            . "(function () { \$connections = Connections::url('redis://127.0.0.1:$redis->port');"
            . "\$cache = new Cache(\$connections, new Options(timeout: 2000)); $code })();";
        return (string) \shell_exec(\PHP_BINARY . ' -r ' . \escapeshellarg($program));
    }

    public function testReadsWithoutInvalidationsAreLoadedTogetherAndThoseWithoutAKeyAreKeptApart(): void
    {
        $cache = $this->open();
        $bad = static fn (string $key): Read => new Read($key, 1000, error: 'an ID of the read is true');
        self::assertSame([1], $cache->fetch($bad(''), static fn (): array => [$cache->fetch($bad(''), self::of(1))]));
        $loaded = [];
        $load = static function (array $missing) use (&$loaded): array {
            $loaded[] = \array_column($missing, 'key');
            return ['' => 'none', 'a' => 'A', 'b' => 'B', 'else' => 1];
        };
        self::assertSame(['a' => 'A', 'b' => 'B'], $cache->fetchMany(\array_map($bad, ['', 'a', 'b', 'a', '', '']), $load));
        self::assertSame(['a' => 'A', '' => 'none'], $cache->fetchMany([$bad('a'), $bad('')], $load));
        self::assertSame([['a', 'b'], ['a', '']], $loaded);
        self::assertSame([], $cache->fetchMany([$bad(''), $bad('')], self::unexpected(...)));
    }

    public function testWhatCannotBeCachedIsLogged(): void
    {
        $reads = [
            'its key or a tag' => [new Read('a}b', 1000), new Read('k', 1000, tags: ["\xff"]), new Read('', 1000)],
            'refuses to store' => [new Read('k', 1000, tags: ['list'])],
            'refuses to read' => [new Read('list', 1000)],
        ];
        $this->redis->rPush('list', 'x');
        $this->redis->rPush('stamp:list', 'x');
        foreach ($reads as $text => $some) {
            foreach ($some as $read) {
                self::clearAPCu();
                $this->warnings = [];
                self::assertSame(1, $this->open()->fetch($read, self::of(1)));
                self::assertStringContainsString($text, $this->warnings[0][0] ?? 'nothing is logged');
            }
        }
        self::clearAPCu();
        $this->warnings = [];
        $this->open()->fetch(new Read('k', 1000), static function (Load $load): int {
            $load->tag('a}b');
            return 1;
        });
        self::assertStringContainsString('its key or a tag', $this->warnings[0][0] ?? 'nothing is logged');
    }

    public function testRefusedReadsAreUnhealthyUntilOneIsNot(): void
    {
        $this->redis->rawCommand('ACL', 'SETUSER', 'shop', 'reset', 'on', '>secret', '+@all', '~shop:*', '~lock:*', '~stamp:shop');
        $cache = $this->cache(Connections::url('redis://shop:secret@127.0.0.1:' . self::$server->port));
        $cache->fetch(new Read('other', 60_000), self::of(1));
        self::assertStringContainsString('NOPERM', $cache->healthy()->getMessage());
        self::assertStringContainsString('refuses to read', $this->warnings[0][0]);
        $cache->fetch(new Read('shop:1', 60_000), self::of(1));
        self::assertNull($cache->healthy());
        $cache->fetch(new Read('shop:2', 60_000, tags: ['other']), self::of(1));
        self::assertStringContainsString('nothing is stored: NOPERM', $cache->healthy()->getMessage());
        $cache->fetch(new Read('shop:3', 60_000, tags: ['shop']), self::of(1));
        self::assertNull($cache->healthy());
    }

    public function testTheMemoryOfAProcessHasABound(): void
    {
        $memory = new Shared('test:', 3);
        if (\function_exists('apcu_enabled') && \apcu_enabled()) {
            self::markTestSkipped('APCu has the values');
        }
        $size = static fn (): int => \count((new \ReflectionProperty($memory, 'own'))->getValue($memory));
        foreach (['a', 'b', 'a', 'c', 'd'] as $name) {
            $memory->set($name, $name, Shared::now() + 60_000);
        }
        self::assertSame([null, 'a', 'c', 'd', 3], [...\array_map($memory->get(...), ['b', 'a', 'c', 'd']), $size()]);
        (new \ReflectionProperty($memory, 'sweep'))->setValue($memory, 0);
        foreach (['a', 'c', 'd'] as $name) {
            $memory->set($name, $name, Shared::now() - 1);
        }
        (new \ReflectionProperty($memory, 'sweep'))->setValue($memory, 0);
        $memory->set('e', 'e', Shared::now() + 60_000);
        self::assertSame(['e', 1], [$memory->get('e'), $size()]);
    }

    public function testTheDeepestValueThatIsStoredCanBeRead(): void
    {
        $cache = $this->open();
        $deep = static fn (int $depth): array => \json_decode(\str_repeat('[', $depth) . \str_repeat(']', $depth), true, 1000);
        $cache->fetch(new Read('k', 60_000), self::of($deep(511)));
        self::assertSame($deep(511), $cache->fetch(new Read('k', 60_000), self::unexpected(...)));
        self::assertSame($deep(512), $cache->fetch(new Read('deeper', 60_000), self::of($deep(512))));
        self::assertSame(0, $this->redis->exists('deeper'));
    }

    public function testAReadWithoutInvalidationsIsLoadedAndNotCached(): void
    {
        $cache = $this->open();
        $read = new Read('k', 1000, error: 'the var env of the map is empty');
        self::assertSame([1, 2], [$cache->fetch($read, self::of(1)), $cache->fetch($read, self::of(2))]);
        self::assertNull($cache->get($read));
        self::assertSame([], $this->redis->keys('*'));
        self::assertSame([[
            'a value is loaded and not cached: no invalidation reaches it',
            ['reason' => 'the var env of the map is empty'],
        ]], $this->warnings);
        self::assertSame(3, $cache->stats()['uncached']);
    }

    public function testAKeyThatTheUserMayNotReadDoesNotFailOthers(): void
    {
        $this->redis->rawCommand(
            'ACL',
            'SETUSER',
            'shop',
            'reset',
            'on',
            '>secret',
            '-@all',
            '+get',
            '+mget',
            '+evalsha',
            '+eval',
            '+set',
            '+unlink',
            '+time',
            '~shop:*',
            '~lock:*'
        ); // no HGET of unstale:alive
        $cache = $this->cache(Connections::url('redis://shop:secret@127.0.0.1:' . self::$server->port));
        self::$server->store('shop:1', ['v' => 'one']);
        $values = $cache->fetchMany([new Read('shop:1', 60_000), new Read('other', 60_000)], self::of(['other' => 'loaded']));
        self::assertEquals(['shop:1' => 'one', 'other' => 'loaded'], $values);
        self::assertSame('two', $cache->fetch(new Read('shop:2', 60_000), self::of('two')));
        self::assertSame('two', $cache->fetch(new Read('shop:2', 60_000), self::unexpected(...)));
        self::assertNull($cache->healthy());
        $this->redis->rawCommand('ACL', 'SETUSER', 'shop', '-evalsha', '-eval');
        self::assertSame('three', $cache->fetch(new Read('shop:3', 60_000), self::of('three')));
        self::assertStringContainsString('nothing is stored: NOPERM', $cache->healthy()->getMessage());
    }

    public function testScriptsThatRedisHasLostAreSentAgain(): void
    {
        $cache = $this->open();
        foreach ([1, 2] as $round) {
            $this->redis->script('FLUSH');
            self::$server->invalidate('k');
            $cache->fetch(new Read('k', 60_000, tags: ['a']), self::of($round));
            self::assertSame($round, self::$server->stored('k')['v']);
        }
    }

    public function testALeaseIsAsShortAsTheMapsFromTheSamePipelineOn(): void
    {
        $cache = $this->open();
        self::$server->beat(lease: 10_000);
        $cache->fetch(new Read('a', 60_000), self::of(1));
        self::$server->beat(lease: 3000); // the reader learns it with the lease, which is for 10 s
        $left = 0;
        $cache->fetch(new Read('b', 60_000), function () use (&$left): int {
            $left = $this->redis->pttl('lock:fill:{b}');
            return 1;
        });
        self::assertGreaterThan(0, $left);
        self::assertLessThanOrEqual(3000, $left);
        self::assertStringContainsString("the map's is 3000 ms", $cache->healthy()->getMessage());
        $cache->fetch(new Read('c', 60_000), self::of(1));
        self::assertGreaterThan(0, $cache->stats()['shortLeases']);
        self::assertSame(1, self::$server->stored('b')['v']);
    }

    public function testALeaseWhoseReplyWasLostIsGivenBack(): void
    {
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy, lease: 60_000, timeout: 100);
        $proxy->rule(self::$server->port, 'lock:hold', 'after');
        self::assertSame('loaded', $cache->fetch(new Read('k', 60_000), self::of('loaded')));
        self::assertSame(1, $this->redis->exists('lock:fill:{k}'));
        $proxy->rule(self::$server->port);
        $cache->finish();
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testALostLeaseIsGivenBackAtTheEndOfAProcess(): void
    {
        $this->open()->fetch(new Read('k', 60_000), static fn (Load $load) => $load->skip()); // Redis has the scripts
        $proxy = $this->proxy(self::$server);
        $proxy->rule(self::$server->port, 'lock:hold', 'after');
        self::assertSame('1', self::program($proxy, "echo \$cache->fetch(new Read('k', 60_000), fn () => 1);"));
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testALeaseIsGivenBackWhoseRequestRedisGetsAfterTheFirstLook(): void
    {
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy, lease: 60_000, timeout: 200);
        $proxy->rule(self::$server->port, 'lock:hold', 'keep');
        self::assertSame('loaded', $cache->fetch(new Read('k', 60_000), self::of('loaded')));
        $proxy->rule(self::$server->port);
        self::assertNull($cache->get(new Read('other', 1000))); // it looks for the first time
        self::assertGreaterThanOrEqual(2, self::$server->calls('get'));
        $proxy->deliver(self::$server->port);
        self::assertSame(1, $this->redis->exists('lock:fill:{k}'));
        $cache->finish();
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testALeaseIsGivenBackWhoseReleaseHasNoReply(): void
    {
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy, lease: 60_000, timeout: 100);
        try {
            $cache->fetch(new Read('k', 60_000), function () use ($proxy): never {
                $proxy->rule(self::$server->port, 'lock:fill:{k}', 'before');
                throw new \RuntimeException('the database is away');
            });
            self::fail('the error of the loader is thrown');
        } catch (\RuntimeException) {
            $proxy->rule(self::$server->port);
        }
        self::assertSame(1, $this->redis->exists('lock:fill:{k}'));
        $cache->finish();
        self::assertSame([], $this->redis->keys('*'));
    }

    public function testAFillWhoseReplyWasLostIsNotRepeatedAndTheLeaseIsGivenBack(): void
    {
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy, lease: 60_000, timeout: 100);
        $cache->fetch(new Read('k', 60_000), function () use ($proxy): string {
            $proxy->rule(self::$server->port, '"v":"new"', 'before');
            return 'new';
        });
        $proxy->rule(self::$server->port);
        $cache->finish();
        self::assertSame([[], 1], [$this->redis->keys('*'), $cache->stats()['errors']]);
    }

    public function testWithTheMemoryOfTheProcessAValueIsOldForAtMostItsTime(): void
    {
        $cache = $this->open(memory: 200);
        $reads = [new Read('k', 60_000, tags: ['a']), new Read('none', 60_000)];
        $cache->fetch($reads[0], self::of('old'));
        $cache->fetch($reads[1], self::of(null));
        self::assertSame([null, 'memory', false], self::all($cache->fetchResult($reads[1], self::unexpected(...))));
        $begun = \hrtime(true);
        $this->redis->flushAll();
        for ($sources = []; ($result = $cache->fetchResult($reads[0], self::of('new')))->value === 'old';) {
            $sources[] = $result->source;
        }
        self::assertSame(['memory'], \array_values(\array_unique($sources)));
        self::assertLessThan(1000, (\hrtime(true) - $begun) / 1e6);
        $patient = $this->open(memory: 60_000);
        $patient->fetch($reads[0], self::unexpected(...));
        self::assertSame('memory', $patient->fetchResult($reads[0], self::unexpected(...))->source);
        self::assertSame(['k' => 'new'], $patient->fetchMany([$reads[0]], self::unexpected(...)));
        self::assertSame('loader', $patient->fetchResult(new Read('k', 60_000, tags: ['b']), self::of(1))->source);
        self::assertTrue($patient->delete(['k']));
        self::assertNull($patient->get($reads[0]));
    }

    public function testInvalidOptions(): void
    {
        $invalid = ['timeout' => 5, 'lease' => 0, 'pause' => 0, 'memory' => -1, 'logger' => new \stdClass()];
        foreach ($invalid as $name => $value) {
            try {
                new Options(...[$name => $value]);
                self::fail("$name is refused");
            } catch (\ValueError $e) {
                self::assertStringStartsWith($name, $e->getMessage());
            }
        }
    }
}
