<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;
use Unstale\Alive;
use Unstale\Cache;
use Unstale\Entry;
use Unstale\Leases;
use Unstale\Names;
use Unstale\Options;
use Unstale\Read;
use Unstale\Scripts;

/** The cases of protocol/conformance for a reader. */
final class ProtocolTest extends TestCase
{
    private static ?RedisServer $server = null;

    public static function tearDownAfterClass(): void
    {
        self::$server?->stop();
    }

    /** @return array<string, array{array<string, mixed>}> */
    public static function names(): array
    {
        return Conformance::cases('names');
    }

    /**
     * @dataProvider names
     *
     * @param array<string, mixed> $case
     */
    public function testNames(array $case): void
    {
        if (isset($case['key'])) {
            $key = Conformance::bytes($case['key']);
            self::assertSame($this->name($case['lease'] ?? null), Names::lease($key));
            self::assertSame($this->name($case['hold'] ?? null), Names::hold($key));
            return;
        }
        $tag = Conformance::bytes($case['tag']);
        self::assertSame(Conformance::bytes($case['stamp']), Names::stamp($tag));
        if (\preg_match('//u', $tag) === 1) {
            self::assertSame($this->name($case['hold'] ?? null), Names::hold(Names::stamp($tag)));
        }
        self::assertSame(\preg_match('//u', $tag) === 1 && isset($case['hold']), Names::areStampable([$tag]));
    }

    public function testNamesOfAllWords(): void
    {
        [$all] = Conformance::file('names')['words'];
        $lines = '';
        for ($words = ['']; \strlen($words[0]) < $all['longest'];) {
            $next = [];
            foreach ($words as $word) {
                foreach (\str_split($all['alphabet']) as $letter) {
                    $next[] = $word . $letter;
                    $lines .= "$word$letter\t" . Names::lease($word . $letter) . "\t" . self::slot($word . $letter) . "\n";
                }
            }
            $words = $next;
        }
        self::assertSame($all['count'], \substr_count($lines, "\n"));
        self::assertSame($all['sha256'], \hash('sha256', $lines));
    }

    public function testALeaseIsInTheSlotOfItsKey(): void
    {
        foreach (['a', 'user:{1000}:cart', 'a{{b}}', '{a}{b}'] as $key) {
            self::assertSame(self::slot($key), self::slot((string) Names::lease($key)), $key);
        }
    }

    /** @param string|array<string, mixed>|null $field */
    private function name(string|array|null $field): ?string
    {
        return $field === null ? null : Conformance::bytes($field);
    }

    private static function slot(string $key): int
    {
        $crc = 0;
        $tag = \preg_match('/^[^{]*\{([^}]+)\}/', $key, $found) === 1 ? $found[1] : $key;
        foreach (\str_split($tag) as $byte) {
            $crc ^= \ord($byte) << 8;
            for ($bit = 0; $bit < 8; $bit++) {
                $crc = ($crc & 0x8000 ? $crc << 1 ^ 0x1021 : $crc << 1) & 0xffff;
            }
        }
        return $crc % 16384;
    }

    /** @return array<string, array{array<string, mixed>}> */
    public static function entries(): array
    {
        return \array_filter(Conformance::cases('entries'), static fn (array $one): bool => !isset($one[0]['codec']));
    }

    /**
     * @dataProvider entries
     *
     * @param array<string, mixed> $case
     */
    public function testEntries(array $case): void
    {
        $bytes = Conformance::bytes($case['entry']);
        self::assertSame($case['hash'], \sha1($bytes));
        $states = ['miss' => Entry::MISS, 'leave' => Entry::FOREIGN, 'on_error' => Entry::ON_ERROR,
            'stale' => Entry::STALE, 'fresh' => Entry::FRESH];
        $entry = Entry::parse($bytes);
        if (!$entry instanceof Entry) {
            self::assertSame($states[$case['read']], $entry === false ? Entry::FOREIGN : Entry::MISS);
            return;
        }
        $own = \array_fill_keys([...($case['tags'] ?? []), ...\array_keys($entry->tags)], '');
        $state = $entry->judge($case['tags'] ?? [], ($case['versions'] ?? []) + $own, $case['at']);
        self::assertSame($states[$case['read']], $state);
        if ($state > Entry::FOREIGN) {
            self::assertSame($case['not_found'] ?? false, $entry->isNegative);
            $json = $entry->isNegative ? 'null' : Conformance::bytes($case['value']);
            self::assertSame(\json_decode($json, true), $entry->value);
        }
    }

    public function testTheVersionsOfTagsThatOnlyTheEntryHasAreAskedFor(): void
    {
        $entry = Entry::parse('{"e":10,"t":{"a":"1","7":"2"},"v":1}');
        self::assertSame(['a', '7'], $entry->judge([], [], 1));
        self::assertSame(['7'], $entry->judge(['a'], ['a' => '1'], 1));
        self::assertSame(Entry::MISS, $entry->judge(['a'], ['a' => '2'], 1));
    }

    public function testIntegersBeyond64BitsAreText(): void
    {
        self::assertSame(['18446744073709551615', \PHP_INT_MAX], Entry::parse(
            '{"e":10,"v":[18446744073709551615,9223372036854775807]}',
        )->value);
    }

    public function testAGzipThatUnpacksToMoreThan64MiBIsAMiss(): void
    {
        $packed = \gzencode(\str_repeat(' ', Entry::LONGEST) . '1');
        self::assertNull(Entry::parse("{\"f\":2,\"e\":10,\"c\":\"gzip\"}\n$packed"));
        self::assertSame(1, Entry::parse("{\"f\":2,\"e\":10,\"c\":\"gzip\"}\n" . \gzencode('     1'))->value);
    }

    /** @return array<string, array{array<string, mixed>}> */
    public static function hashes(): array
    {
        return Conformance::cases('hashes');
    }

    /**
     * @dataProvider hashes
     *
     * @param array<string, mixed> $case
     */
    public function testHashes(array $case): void
    {
        self::assertSame($case['sha1'], \sha1(Conformance::bytes($case['value'])));
    }

    public function testTheScriptsAreTheFilesByteForByte(): void
    {
        foreach (Scripts::SHA1 as $name => $sha1) {
            $file = __DIR__ . "/../../../protocol/scripts/$name.lua";
            self::assertFileEquals($file, __DIR__ . "/../lua/$name.lua");
            self::assertSame(\sha1_file($file), $sha1);
            self::assertSame(['EVAL', \file_get_contents($file), 1, 'k', 'a'], Scripts::whole(Scripts::command($name, ['k'], ['a'])));
        }
    }

    /** @return array<string, array{array<string, mixed>}> */
    public static function scripts(): array
    {
        $isOurs = static fn (array $step): bool => ($step['script'] ?? '') !== 'expire';
        return \array_filter(
            Conformance::cases('scripts'),
            static fn (array $one): bool => $one[0]['steps'] === \array_filter($one[0]['steps'], $isOurs),
        );
    }

    /**
     * @dataProvider scripts
     *
     * @param array<string, mixed> $case
     */
    public function testScripts(array $case): void
    {
        self::$server ??= new RedisServer();
        $redis = self::$server->admin();
        $redis->flushAll();
        foreach ($case['before'] as $name => $field) {
            $redis->set((string) $name, Conformance::bytes($field['value']), isset($field['px']) ? ['px' => $field['px']] : []);
        }
        $latest = '';
        $bytes = static function (string|array $field) use (&$latest): string {
            return \str_replace('TIME', $latest, Conformance::bytes($field));
        };
        foreach ($case['steps'] as $step) {
            $redis->clearLastError();
            $keys = \array_map($bytes, $step['keys'] ?? []);
            $command = isset($step['script'])
                ? Scripts::whole(Scripts::command($step['script'], $keys, \array_map($bytes, $step['args'] ?? [])))
                : \array_map($bytes, $step['command']);
            $reply = $redis->rawCommand(...$command);
            if (isset($step['error'])) {
                self::assertNotNull($redis->getLastError());
                continue;
            }
            self::assertNull($redis->getLastError());
            self::assertSame(self::wanted($step['reply'] ?? null), self::shown($reply, $latest));
        }
        $after = [];
        foreach ($redis->keys('*') as $name) {
            $isList = $redis->type($name) === \Redis::REDIS_LIST;
            $after[$name] = $isList ? '(list)' : self::shown($redis->get($name), $latest);
            $px = $case['after'][$name]['px'] ?? null;
            self::assertTrue(!$px || (int) (\ceil($redis->pttl($name) / 100_000) * 100_000) === $px, "TTL of $name");
        }
        $wanted = \array_map(static fn (array $field): mixed => self::wanted($field['value']), $case['after']);
        \ksort($after);
        \ksort($wanted);
        self::assertSame($wanted, $after);
    }

    public function testLimits(): void
    {
        $limits = \array_column(Conformance::file('limits')['cases'], 'value', 'name');
        $read = new Read('k', Read::LONGEST);
        $own = [
            'entry.unpacked' => Entry::LONGEST,
            'entry.ttl' => Read::LONGEST / 1000,
            'entry.jitter' => $read->jitter,
            'entry.negative_ttl' => $read->negative / 1000,
            'entry.pause_after_failure' => Cache::LOAD_PAUSE / 1000,
            'version.margin' => Leases::VERSION_MARGIN / 1000,
            'lease.ttl' => Options::LEASE / 1000,
            'lease.first_pause' => Leases::FIRST_PAUSE / 1000,
            'lease.longest_pause' => Leases::LONGEST_PAUSE / 1000,
            'lease.holders' => Leases::MOST_HOLDERS,
            'alive.age' => Alive::LONGEST_SILENCE / 1000,
            'clock.compare_after' => Alive::CLOCK_LIFE / 1000,
            'clock.step' => Alive::CLOCK_STEP / 1000,
        ];
        foreach ($own as $name => $value) {
            self::assertEquals($limits[$name], $value, $name);
        }
    }

    /** Returns a reply with the latest time as TIME, and TTLs rounded up. */
    private static function shown(mixed $reply, string &$latest): mixed
    {
        if (\is_array($reply)) {
            $shown = [];
            foreach ($reply as $one) {
                $shown[] = self::shown($one, $latest);
            }
            return $shown;
        }
        if (\is_int($reply)) {
            return $reply > 1000 ? (int) (\ceil($reply / 100_000) * 100_000) : $reply;
        }
        if (!\is_string($reply)) {
            return $reply === true ? 'OK' : null;
        }
        \preg_match('/\d{16}/', $reply, $found);
        $latest = $found[0] ?? $latest;
        return \preg_replace('/\d{16}/', 'TIME', $reply);
    }

    private static function wanted(mixed $reply): mixed
    {
        return match (true) {
            \is_array($reply) && \array_is_list($reply) => \array_map(self::wanted(...), $reply),
            $reply === null, \is_int($reply) => $reply,
            default => \preg_replace('/\d{16}/', 'TIME', Conformance::bytes($reply)),
        };
    }
}
