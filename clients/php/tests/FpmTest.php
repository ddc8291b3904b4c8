<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** PHP-FPM: each request has a cache of its own, and two processes share what APCu has. */
final class FpmTest extends ReaderTest
{
    private static ?Fpm $fpm = null;
    private RedisServer $server;

    public static function setUpBeforeClass(): void
    {
        $program = \trim((string) \shell_exec('command -v php-fpm' . \PHP_MAJOR_VERSION . '.' . \PHP_MINOR_VERSION
            . ' php-fpm | head -1'));
        if ($program === '' || !\extension_loaded('apcu')) {
            self::markTestSkipped('it needs php-fpm and APCu');
        }
        self::$fpm = new Fpm($program);
    }

    public static function tearDownAfterClass(): void
    {
        self::$fpm?->stop();
    }

    protected function setUp(): void
    {
        $this->server = $this->start();
    }

    /** @param mixed ...$ask */
    private function get(mixed ...$ask): array
    {
        return self::$fpm->get(...$ask, port: $this->server->port);
    }

    public function testAnExpiredValueIsReplacedAfterTheResponse(): void
    {
        $this->server->store('k', ['e' => -1000, 's' => 60_000, 'v' => 'old']);
        $options = ['timeout' => 2000];
        $first = $this->get(value: 'new', waits: 'go', session: true, options: $options);
        self::assertSame(['old', 'redis', true], [$first['value'], $first['source'], $first['stale']]);
        $this->server->admin()->blPop('began', 10); // the loader runs, and its session is not locked
        self::assertSame('old', $this->get(value: 'none', session: true, options: $options)['value']);
        $this->server->admin()->rPush('go', '1');
        self::eventually('the new value', fn (): bool => $this->get(value: 'none', options: $options)['value'] === 'new');
        self::assertSame([], $this->server->admin()->keys('lock:*'));
    }

    public function testAValueInMemoryIsOldForAtMostItsTime(): void
    {
        $options = ['timeout' => 2000, 'memory' => 1000];
        self::assertSame('loader', $this->get(value: 'old', options: $options)['source']);
        $remembers = [];
        self::eventually('both processes have the value', function () use ($options, &$remembers): bool {
            $answer = $this->get(value: 'old', options: $options);
            $remembers += $answer['source'] === 'memory' ? [$answer['pid'] => true] : [];
            return \count($remembers) === 2;
        });
        $this->server->invalidate('k');
        $invalidated = \hrtime(true);
        $answers = [];
        do {
            $asked = \hrtime(true);
            $answer = $this->get(value: 'new', options: $options);
            $answers[] = $answer['value'];
            if ($answer['value'] === 'old') {
                self::assertSame('memory', $answer['source']);
                self::assertLessThan(1.0, ($asked - $invalidated) / 1e9);
            }
        } while ($answer['value'] === 'old');
        self::assertSame('new', $answer['value']);
    }

    public function testWithoutTheOptionNothingIsReadFromMemory(): void
    {
        $options = ['timeout' => 2000, 'memory' => 60_000, 'lease' => 60_000];
        $this->get(value: 'first', options: $options);
        $answer = $this->get(value: 'second', options: ['memory' => 0] + $options);
        self::assertSame(['first', 'redis'], [$answer['value'], $answer['source']]); // without the option, Redis counts
    }

    public function testAllProcessesStopAskingARedisThatHangs(): void
    {
        $options = ['timeout' => 100, 'pause' => 60_000];
        $this->server->signal(\SIGSTOP);
        $slow = 0;
        for ($i = 0; $i < 12; $i++) {
            $begun = \hrtime(true);
            $answer = $this->get(value: 'loaded', options: $options);
            self::assertSame('loaded', $answer['value']);
            $slow += (int) (\hrtime(true) - $begun > 90_000_000 && \str_starts_with((string) $answer['healthy'], 'Redis has not'));
        }
        self::assertSame(5, $slow);
        $this->server->signal(\SIGCONT);
    }

    public function testAPersistentConnectionServesSeveralRequests(): void
    {
        $ids = \array_map(fn (): array => $this->get(value: 1, persistent: true, options: ['timeout' => 2000])['id'], \range(1, 20));
        self::assertLessThanOrEqual(2 + 1, \count(\array_unique(\array_merge(...$ids)))); // one of each process, and the test's
    }
}
