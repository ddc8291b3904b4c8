<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** A process in front of a server, which a test can cut. It ends with this one. */
final class Proxy
{
    public readonly int $port;

    private readonly string $file;
    private readonly int $process;

    /** @param int $target the port to which new connections lead */
    public function __construct(int $target)
    {
        $server = \stream_socket_server('tcp://127.0.0.1:0');
        $this->port = (int) \substr(\strrchr(\stream_socket_get_name($server, false), ':'), 1);
        $this->file = \tempnam(\sys_get_temp_dir(), 'unstale-proxy-');
        $this->rule($target);
        $parent = \getmypid();
        $this->process = \pcntl_fork();
        if ($this->process === 0) {
            $this->serve($server, $parent);
            \posix_kill(\getmypid(), \SIGKILL); // without the shutdown functions of the parent
        }
        \register_shutdown_function($this->stop(...));
    }

    /**
     * Sets where connections lead from now on, and what happens to a request with a text: 'before': the
     * connection ends before the server gets it; 'keep': the same, and `deliver` sends it later;
     * 'after': the connection ends after the server has run it; 'first': the server gets what `first`
     * has before it.
     */
    public function rule(int $target, string $text = '', string $cut = ''): void
    {
        \file_put_contents("$this->file.new", \json_encode([$target, $text, $cut]));
        \rename("$this->file.new", $this->file);
    }

    /** Sets the command that the server gets before a request with a text. */
    public function first(int $target, string $text, string ...$command): void
    {
        $parts = \array_map(static fn (string $part): string => '$' . \strlen($part) . "\r\n$part\r\n", $command);
        \file_put_contents("$this->file.kept", '*' . \count($command) . "\r\n" . \implode($parts));
        $this->rule($target, $text, 'first');
    }

    /** Sends the server what it has not got, and waits for its answer. */
    public function deliver(int $target): void
    {
        $server = \stream_socket_client("tcp://127.0.0.1:$target");
        \fwrite($server, \file_get_contents("$this->file.kept"));
        \fread($server, 1 << 16);
    }

    public function stop(): void
    {
        \posix_kill($this->process, \SIGKILL);
        \pcntl_waitpid($this->process, $status);
        \array_map(\unlink(...), \glob("$this->file*"));
    }

    /** @param resource $server */
    private function serve($server, int $parent): void
    {
        $peers = $cut = [];
        while (\posix_getppid() === $parent) {
            $streams = [$server, ...\array_column($peers, 0)];
            $none = null;
            \stream_select($streams, $none, $none, 0, 100_000);
            foreach ($streams as $from) {
                [$target, $text, $how] = \json_decode(\file_get_contents($this->file), true);
                if ($from === $server) {
                    $client = \stream_socket_accept($server);
                    $there = \stream_socket_client("tcp://127.0.0.1:$target");
                    $peers[(int) $client] = [$client, $there, true];
                    $peers[(int) $there] = [$there, $client, false];
                    continue;
                }
                if (!isset($peers[(int) $from])) {
                    continue;
                }
                [, $to, $isClient] = $peers[(int) $from];
                $data = (string) \fread($from, 1 << 20);
                $isHit = $isClient && $text !== '' && \str_contains($data, $text);
                if ($isHit && $how === 'after') {
                    $cut[(int) $to] = true;
                }
                if ($isHit && $how === 'first') {
                    $this->deliver($target);
                    [$isHit] = [false, $this->rule($target)];
                }
                if ($isHit && $how === 'keep') {
                    \file_put_contents("$this->file.kept", $data);
                }
                if ($data === '' || $isHit && $how !== 'after' || isset($cut[(int) $from])) {
                    unset($peers[(int) $from], $peers[(int) $to], $cut[(int) $from]);
                    \fclose($from);
                    \fclose($to);
                } else {
                    \fwrite($to, $data);
                }
            }
        }
    }
}
