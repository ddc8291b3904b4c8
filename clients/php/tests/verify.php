<?php

// The driver of this client for `unstale-lab verify --client` and `unstale-lab conform`, whose lines
// lab/conform/README.md describes. A process of PHP serves one call at a time, so this one has others
// for the calls, as PHP-FPM has. UNSTALE_PLANT names a bug to have.

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Cache;
use Unstale\Connections;
use Unstale\Options;
use Unstale\Read;

require __DIR__ . '/../autoload.php';

/** Lines of JSON over a stream. */
final class Lines
{
    private string $text = '';

    /** @param resource $in  @param resource $out */
    public function __construct(public $in, private $out)
    {
    }

    public function tell(array $line): void
    {
        // fwrite() to a pipe may be short.
        for ($text = \json_encode($line, \JSON_THROW_ON_ERROR) . "\n"; $text !== '';) {
            $text = \substr($text, @\fwrite($this->out, $text) ?: exit(1));
        }
    }

    /** Waits for a line. Null: the other side has ended. */
    public function next(): ?array
    {
        $line = \fgets($this->in);
        return $line === false ? null : \json_decode($line, true, 512, \JSON_THROW_ON_ERROR);
    }

    /** Returns the lines that have come. Null: the other side has ended. */
    public function come(): ?array
    {
        $more = \fread($this->in, 1 << 20);
        if ($more === '' || $more === false) {
            return null;
        }
        $lines = \explode("\n", $this->text . $more);
        $this->text = \array_pop($lines);
        return \array_map(static fn (string $line): array => \json_decode($line, true, 512, \JSON_THROW_ON_ERROR), $lines);
    }
}

/** A process that serves one call at a time. */
final class Caller
{
    private readonly Cache $cache;

    public function __construct(private readonly Lines $lines, private readonly array $hello, string $plant)
    {
        $open = function (float $seconds) use ($plant): \Redis {
            $parts = \parse_url($this->hello['redis']);
            $redis = new PlantedRedis();
            $redis->bug = $plant;
            $redis->other = new \Redis();
            foreach ([$redis, $redis->other] as $one) {
                $one->connect($parts['host'], $parts['port'], $seconds);
                if ($plant !== 'late-stamps') {
                    break;
                }
            }
            return $redis;
        };
        $isCluster = ($hello['cluster'] ?? false) === true;
        $url = $hello['redis'];
        $connections = match (true) {
            $isCluster => Connections::cluster([\parse_url($url, \PHP_URL_HOST) . ':' . \parse_url($url, \PHP_URL_PORT)]),
            \in_array($plant, ['', 'old-snapshot'], true) => Connections::url($url),
            default => new Connections($open),
        };
        $this->cache = new Cache($connections, new Options(
            timeout: $hello['timeout'],
            lease: $hello['lease'],
            pause: 1, // on a busy machine, an answer may be late; the next read is sent even so
            source: $hello['source'] ?? null,
            primary: isset($hello['mysql']) ? $this->primary(...) : null,
            logger: new class {
                public function warning(string $m, array $c): void
                {
                }
            },
            later: true,
        ));
    }

    public function serve(): void
    {
        while (($line = $this->lines->next()) !== null) {
            try {
                $answer = $line['type'] === 'fetch' ? $this->fetch($line) : $this->fetchMany($line);
            } catch (\Exception $e) {
                $answer = ['error' => $e->getMessage()];
            }
            $this->lines->tell(['type' => 'result', 'id' => $line['id']] + $answer);
            $this->cache->finish();
            ['refused' => $refused, 'unsettled' => $unsettled] = $this->cache->stats();
            $this->lines->tell(['type' => 'idle', 'refused' => $refused, 'unsettled' => $unsettled]);
        }
    }

    private function fetch(array $line): array
    {
        $key = $line['keys'][0];
        $loader = fn (): ?string => $this->load([$key])[$key] ?? null;
        $result = $this->cache->fetchResult($this->read($line, $key), $loader, $line['token'] ?? null);
        return [
            'values' => $result->value === null ? (object) [] : [$key => $result->value],
            'from' => $result->stale ? 'stale' : ($result->source === 'redis' ? 'redis' : 'load'),
        ];
    }

    private function fetchMany(array $line): array
    {
        $reads = \array_map(fn (string $key): Read => $this->read($line, $key), $line['keys']);
        $loader = fn (array $missing): array => $this->load(\array_map(static fn (Read $read): string => $read->key, $missing));
        return ['values' => (object) $this->cache->fetchMany($reads, $loader)];
    }

    private function read(array $line, string $key): Read
    {
        return new Read($key, $line['ttl'] ?? $this->hello['ttl'], stale: $line['stale'] ?? 0, tags: $line['tags'] ?? []);
    }

    private function load(array $keys): array
    {
        $this->lines->tell(['type' => 'load', 'keys' => $keys]);
        $loaded = $this->lines->next() ?? exit(0);
        return isset($loaded['error']) ? throw new \RuntimeException($loaded['error']) : $loaded['values'] ?? [];
    }

    private function primary(): \PDO
    {
        static $pdo = null;
        $url = \parse_url($this->hello['mysql']);
        $dsn = "mysql:host={$url['host']};port={$url['port']};dbname=" . \trim($url['path'], '/');
        return $pdo ??= new \PDO($dsn, $url['user'] ?? '', $url['pass'] ?? '');
    }
}

/** The process that the judge talks to. */
final class Driver
{
    private const MOST = 32;

    private readonly Lines $judge;
    private array $hello = [];

    /** @var array<int, Lines> */
    private array $callers = [];

    /** @var array<int, true> */
    private array $idle = [];

    /** @var array<int, array<string, int>> of each caller */
    private array $stats = [];

    private array $queue = [];

    /** @var array<int, array{int, list<string>}> the caller of each load, and its keys */
    private array $loads = [];

    private int $loadCount = 0;

    /** @var array<string, array{?string, float}> */
    private array $snapshot = [];

    public function __construct(private readonly string $plant)
    {
        $this->judge = new Lines(\STDIN, \STDOUT);
        \stream_set_blocking(\STDIN, false);
    }

    public function run(): void
    {
        while (true) {
            $streams = ['judge' => \STDIN] + \array_map(static fn (Lines $caller) => $caller->in, $this->callers);
            $none = null;
            if (@\stream_select($streams, $none, $none, null) === false) {
                continue;
            }
            foreach (\array_keys($streams) as $from) {
                $lines = ($from === 'judge' ? $this->judge : $this->callers[$from])->come();
                if ($lines === null) {
                    $from === 'judge' || \fwrite(\STDERR, "the process of a caller has ended\n");
                    exit($from === 'judge' ? 0 : 1);
                }
                foreach ($lines as $line) {
                    $from === 'judge' ? $this->hear($line) : $this->answer($from, $line);
                }
            }
            while ($this->queue !== [] && ($caller = $this->idle()) !== null) {
                unset($this->idle[$caller]);
                $this->callers[$caller]->tell(\array_shift($this->queue));
            }
        }
    }

    /** Takes a line of the judge. */
    private function hear(array $line): void
    {
        switch ($line['type']) {
            case 'hello':
                $this->hello = $line;
                $this->judge->tell(['type' => 'ready', 'version' => 1, 'name' => 'unstale/client', 'many' => true,
                    'cluster' => true, 'tokens' => isset($line['mysql'])]);
                break;
            case 'fetch':
            case 'fetchMany':
                $this->queue[] = $line;
                break;
            case 'loaded':
                [$caller, $keys] = $this->loads[$line['id']];
                unset($this->loads[$line['id']]);
                $this->callers[$caller]->tell($this->plant === 'old-snapshot' ? $this->old($line, $keys) : $line);
                break;
            case 'stats':
                $sum = static fn (string $name, array $all): int => \array_sum(\array_column($all, $name));
                $this->judge->tell(['type' => 'stats', 'id' => $line['id'], 'refused' => $sum('refused', $this->stats),
                    'unsettled' => $sum('unsettled', $this->stats)]);
                break;
            case 'close':
                exit(0);
        }
    }

    /** Takes a line of a caller. */
    private function answer(int $caller, array $line): void
    {
        if ($line['type'] === 'idle') {
            $this->idle[$caller] = true;
            $this->stats[$caller] = $line;
        } elseif ($line['type'] === 'load') {
            $this->loads[++$this->loadCount] = [$caller, $line['keys']];
            $this->judge->tell(['id' => $this->loadCount] + $line);
        } else {
            isset($line['values']) && $line['values'] = (object) $line['values'];
            $this->judge->tell($line);
        }
    }

    /** The bug old-snapshot returns what a transaction of up to three seconds ago would read. */
    private function old(array $line, array $keys): array
    {
        foreach (isset($line['error']) ? [] : $keys as $key) {
            [$value, $at] = $this->snapshot[$key] ?? [null, -\INF];
            if (\hrtime(true) / 1e9 - $at < 3) {
                $line['values'][$key] = $value;
            } else {
                $this->snapshot[$key] = [$line['values'][$key] ?? null, \hrtime(true) / 1e9];
            }
        }
        return $line;
    }

    private function idle(): ?int
    {
        if ($this->idle === [] && \count($this->callers) < self::MOST) {
            [$here, $there] = \stream_socket_pair(\STREAM_PF_UNIX, \STREAM_SOCK_STREAM, 0);
            $caller = \count($this->callers);
            if (\pcntl_fork() === 0) {
                \fclose($here);
                (new Caller(new Lines($there, $there), $this->hello, $this->plant))->serve();
                exit(0);
            }
            \fclose($there);
            $this->callers[$caller] = new Lines($here, $here);
            $this->idle[$caller] = true;
        }
        return \array_key_first($this->idle);
    }
}

$plant = (string) \getenv('UNSTALE_PLANT');
if (!\in_array($plant, ['', 'bare-fill', 'left-lease', 'late-stamps', 'old-snapshot', 'old-birth'], true)) {
    \fwrite(\STDERR, "there is no bug $plant\n");
    exit(2);
}
(new Driver($plant))->run();
