<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** The MySQL server of the tests of this process, with the account root, which has no password. */
final class MySQL
{
    public const UNSTALE = __DIR__ . '/../../../bin/unstale';

    public readonly string $socket;

    private static ?self $shared = null;

    private readonly string $folder;

    /** @var resource */
    private $server;

    /** Starts the server at the first call. */
    public static function shared(): self
    {
        return self::$shared ??= new self();
    }

    /**
     * Starts the mysqld on PATH, which scripts/test-clients sets, without a port. It ends with this
     * process.
     */
    public function __construct(string ...$options)
    {
        $this->folder = \sys_get_temp_dir() . '/unstale-mysql-' . \bin2hex(\random_bytes(6));
        $this->socket = "$this->folder/socket";
        \mkdir($this->folder);
        \register_shutdown_function($this->stop(...));
        $initialized = \proc_close($this->start('--initialize-insecure', '--innodb-redo-log-capacity=8M'));
        if ($initialized !== 0) {
            throw new \RuntimeException('mysqld --initialize-insecure: ' . $this->log());
        }
        $this->server = $this->start(
            '--skip-networking',
            "--socket=$this->socket",
            '--mysqlx=OFF',
            "--tmpdir=$this->folder",
            "--pid-file=$this->folder/pid",
            ...$options,
        );
        while (!\str_contains($this->log(), 'ready for connections')) {
            if (!\proc_get_status($this->server)['running']) {
                throw new \RuntimeException('mysqld: ' . $this->log());
            }
            \usleep(20_000);
        }
    }

    public function stop(): void
    {
        if (isset($this->server)) {
            Process::kill($this->server);
            unset($this->server);
        }
        \exec('rm -rf ' . \escapeshellarg($this->folder));
    }

    /** Creates a database with the tables of the outbox. */
    public function database(string $name): void
    {
        $this->connect('')->exec("CREATE DATABASE $name");
        \exec(\escapeshellarg(self::UNSTALE) . ' migrate up --mysql-dsn '
            . \escapeshellarg($this->goDSN($name)) . ' 2>&1', $output, $code);
        if ($code !== 0) {
            throw new \RuntimeException(\implode("\n", $output));
        }
    }

    /** @param array<int, mixed> $options of PDO */
    public function connect(string $database = 'shop', array $options = [], string $charset = 'utf8mb4'): \PDO
    {
        return new \PDO($this->dsn($database, $charset), 'root', '', $options);
    }

    public function dsn(string $database = 'shop', string $charset = 'utf8mb4'): string
    {
        return "mysql:unix_socket=$this->socket;charset=$charset;dbname=$database";
    }

    /** Returns the DSN for programs in Go. */
    public function goDSN(string $database): string
    {
        return "root@unix($this->socket)/$database";
    }

    /** Returns a connection that can send a statement without a wait for the answer, unlike PDO. */
    public function mysqli(): \mysqli
    {
        return new \mysqli(null, 'root', '', 'shop', null, $this->socket);
    }

    /** @return resource */
    private function start(string ...$arguments)
    {
        $user = \posix_getpwuid(\posix_geteuid())['name'];
        $own = ['--no-defaults', "--datadir=$this->folder/data", "--user=$user", '--skip-log-bin',
            '--secure-file-priv=NULL', '--innodb-flush-method=nosync'];
        return Process::start("$this->folder/log", 'mysqld', ...$own, ...$arguments);
    }

    private function log(): string
    {
        return (string) @\file_get_contents("$this->folder/log");
    }
}
