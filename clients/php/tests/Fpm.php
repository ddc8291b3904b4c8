<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** The php-fpm of a test, with two processes that serve tests/fpm/app.php, and APCu. */
final class Fpm
{
    private readonly string $folder;

    /** @var resource */
    private $process;

    public function __construct(string $program)
    {
        $this->folder = \sys_get_temp_dir() . '/unstale-fpm-' . \bin2hex(\random_bytes(6));
        \mkdir($this->folder);
        $user = \posix_getpwuid(\posix_geteuid())['name'];
        \file_put_contents("$this->folder/conf", <<<INI
            [global]
            error_log = $this->folder/log
            [www]
            listen = $this->folder/socket
            user = $user
            group = $user
            pm = static
            pm.max_children = 2
            catch_workers_output = yes
            php_admin_value[error_log] = $this->folder/errors
            php_admin_value[session.save_path] = $this->folder
            INI);
        $command = ['setpriv', '--pdeathsig', 'KILL', $program, '-F', '-R', '-y', "$this->folder/conf"];
        $this->process = \proc_open($command, [1 => ['pipe', 'w'], 2 => ['redirect', 1]], $pipes);
        \register_shutdown_function($this->stop(...));
        while (!\file_exists("$this->folder/socket")) {
            if (!\proc_get_status($this->process)['running']) {
                throw new \RuntimeException("$program: " . \stream_get_contents($pipes[1]));
            }
            \usleep(1000);
        }
    }

    /**
     * Sends a request.
     *
     * @param array<string, mixed> $ask what app.php gets
     *
     * @return resource from which `answer` reads
     */
    public function ask(array $ask)
    {
        $parameters = ['SCRIPT_FILENAME' => __DIR__ . '/fpm/app.php', 'REQUEST_METHOD' => 'GET', 'QUERY_STRING' => \json_encode($ask)];
        $text = '';
        foreach ($parameters as $name => $value) {
            $text .= \pack('NN', \strlen($name) | 1 << 31, \strlen($value) | 1 << 31) . $name . $value;
        }
        $record = static fn (int $type, string $body): string => \pack('CCnnCC', 1, $type, 1, \strlen($body), 0, 0) . $body;
        $stream = \stream_socket_client("unix://$this->folder/socket");
        \fwrite($stream, $record(1, \pack('nCx5', 1, 0)) . $record(4, $text) . $record(4, '') . $record(5, ''));
        return $stream;
    }

    /**
     * Waits for the end of a response, which may be long before the process is free again.
     *
     * @param resource $stream
     *
     * @return array<string, mixed>
     */
    public function answer($stream): array
    {
        $output = '';
        while (\strlen($head = (string) \stream_get_contents($stream, 8)) === 8) {
            ['type' => $type, 'length' => $length, 'padding' => $padding] = \unpack('Cversion/Ctype/nid/nlength/Cpadding', $head);
            $body = $length > 0 ? \stream_get_contents($stream, $length) : '';
            $padding > 0 && \stream_get_contents($stream, $padding);
            $output .= $type === 6 || $type === 7 ? $body : '';
            if ($type === 3) {
                break;
            }
        }
        $answer = \json_decode(\explode("\r\n\r\n", $output, 2)[1] ?? '', true);
        return $answer ?? throw new \RuntimeException($output . @\file_get_contents("$this->folder/errors"));
    }

    /** @param mixed ...$ask */
    public function get(mixed ...$ask): array
    {
        return $this->answer($this->ask($ask));
    }

    public function stop(): void
    {
        if (\is_resource($this->process)) {
            \proc_terminate($this->process);
            \proc_close($this->process);
        }
        \array_map(\unlink(...), \glob("$this->folder/*"));
        \is_dir($this->folder) && \rmdir($this->folder);
    }
}
