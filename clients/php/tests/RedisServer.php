<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** A redis-server of a test, without persistence. */
final class RedisServer
{
    public readonly int $port;
    public readonly string $folder;

    /** @var resource */
    private $process;

    private ?\Redis $admin = null;

    /** @var list<string> */
    private readonly array $options;

    /** Starts the redis-server on PATH. It ends with this process. */
    public function __construct(string ...$options)
    {
        $this->options = $options;
        $this->port = self::freePort();
        $this->folder = \sys_get_temp_dir() . '/unstale-redis-' . \bin2hex(\random_bytes(6));
        \mkdir($this->folder);
        \register_shutdown_function($this->stop(...));
        $this->start();
    }

    public static function freePort(): int
    {
        $socket = \stream_socket_server('tcp://127.0.0.1:0');
        return (int) \substr(\strrchr(\stream_socket_get_name($socket, false), ':'), 1);
    }

    /** Starts it again, on the same port, and waits until it serves clients. */
    public function start(): void
    {
        $isFile = fn (string $option): bool => \str_starts_with($option, '/') && $option === $this->options[0];
        $own = ['--port', (string) $this->port, '--save', '', '--dir', $this->folder, '--enable-debug-command', 'yes'];
        $command = ['setpriv', '--pdeathsig', 'KILL', 'redis-server', ...\array_filter($this->options, $isFile), ...$own,
            ...\array_filter($this->options, static fn (string $option): bool => !$isFile($option))];
        $this->process = \proc_open($command, [1 => ['pipe', 'w'], 2 => ['redirect', 1]], $pipes);
        for ($log = ''; \preg_match('/Ready to accept connections|Sentinel ID is/', $log) !== 1; $log .= $line) {
            $line = \fgets($pipes[1]);
            if ($line === false) {
                throw new \RuntimeException("redis-server: $log");
            }
        }
        $this->admin = null;
    }

    /** A connection of the test. */
    public function admin(): \Redis
    {
        if ($this->admin === null) {
            $this->admin = new \Redis();
            $this->admin->connect('127.0.0.1', $this->port, 5, null, 0, 10);
        }
        return $this->admin;
    }

    /** Ends it at once. */
    public function kill(): void
    {
        Process::kill($this->process);
    }

    /** Makes it hang (SIGSTOP), or continue (SIGCONT). */
    public function signal(int $signal): void
    {
        \proc_terminate($this->process, $signal);
    }

    public function stop(): void
    {
        if (\is_resource($this->process)) {
            $this->kill();
        }
        \array_map(\unlink(...), \glob("$this->folder/*"));
        \is_dir($this->folder) && \rmdir($this->folder);
    }

    public function url(): string
    {
        return "redis://127.0.0.1:$this->port";
    }

    /** How often a command was called since `CONFIG RESETSTAT`. */
    public function calls(string $command): int
    {
        $found = $this->admin()->info('commandstats')["cmdstat_$command"] ?? 'calls=0';
        return (int) \substr($found, \strlen('calls='));
    }

    /** Its time in milliseconds. */
    public function time(): float
    {
        [$seconds, $micros] = $this->admin()->time();
        return $seconds * 1000 + $micros / 1000;
    }

    /** Does what a worker does with a key or a tag version. */
    public function invalidate(string $name): void
    {
        $this->admin()->unlink($name, 'lock:fill:' . (\str_contains($name, '{') ? $name : "{{$name}}"));
    }

    /** Writes what a worker writes once per second, as if some milliseconds ago. */
    public function beat(float $ago = 0, int $lease = 10_000): void
    {
        $t = (int) (($this->time() - $ago) * 1000);
        $this->admin()->hSet('unstale:alive', 'shop', \json_encode(['t' => $t, 'lease' => $lease, 'map' => 'm']));
    }

    /** Returns what a key has, and for how many milliseconds. */
    public function stored(string $key): array
    {
        return \json_decode($this->admin()->get($key), true) + ['px' => $this->admin()->pttl($key)];
    }

    /** Stores an entry as another reader would. Times are milliseconds from now. */
    public function store(string $key, array $fields, int $px = 600_000): void
    {
        $now = (int) $this->time();
        foreach (['s', 'o'] as $name) {
            isset($fields[$name]) && $fields[$name] += $now;
        }
        $fields['e'] = $now + ($fields['e'] ?? $px);
        $this->admin()->set($key, \json_encode($fields), ['px' => $px]);
    }
}
