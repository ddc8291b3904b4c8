<?php

// Makes a read and a write race, with this client and with what Laravel and Symfony have, on a MySQL, a
// Redis and a worker of its own, and prints who stores the old value: "php races.php", or "php
// races.php NAME" for some. Each reader and writer is a process. Exit code 1 if this client stores one.
//
//   deleted      a load has read the old row. The new row is committed, and another process deletes the
//                key, in the way that the library documents, or the worker does. Then the load goes on
//   refreshed    the same for the load that replaces an expired value after the response
//   Redis empty  as deleted, and Redis is killed before, and comes back without data
//   died         the application dies between the commit and its deletion
//
//   new    no later reader gets the old value, and it is stored nowhere
//   old    the old value stays until its time is over
//   error  as new, and the reader got an exception instead of a value

declare(strict_types=1);

namespace Unstale\Frameworks;

use Unstale\Invalidation;
use Unstale\Outbox;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/Site.php';

$libraries = require __DIR__ . '/libraries.php';

// A process: each line of its input is an order, and each line of its output the answer, or that a load
// pauses, which the next line lets go on.
if (($argv[1] ?? '') === 'process') {
    [, , $name, $port, $socket] = $argv;
    $mysql = new \PDO("mysql:unix_socket=$socket;dbname=shop", 'root', '');
    [$get, $delete, $after] = $libraries[$name]((int) $port, $socket);
    $say = static fn (array $answer) => \fwrite(\STDOUT, \json_encode($answer) . "\n");
    $say(['ready' => true]);
    while (($line = \fgets(\STDIN)) !== false) {
        $order = \json_decode($line, true);
        $id = $order['id'];
        $load = static function () use ($mysql, $id, $order, $say): int {
            $price = (int) $mysql->query("SELECT price_cents FROM products WHERE id = $id")->fetchColumn();
            if ($order['pauses'] ?? false) {
                $say(['loading' => true]);
                \fgets(\STDIN);
            }
            return $price;
        };
        try {
            $say(['value' => match ($order['do']) {
                'get' => $get("product:$id", $load),
                'after' => $after(),
                'delete' => $delete("product:$id"),
                'write' => (new Outbox())->inTransaction($mysql, static function ($tx) use ($mysql, $id, $order): void {
                    $mysql->exec("UPDATE products SET price_cents = 200 WHERE id = $id");
                    $order['ours'] && $tx->enqueue(new Invalidation('product', $id));
                })->token,
            }]);
        } catch (\Throwable $error) {
            $say(['error' => $error->getMessage()]);
        }
    }
    exit;
}

/** Another process of an application. */
final class Child
{
    /** @var resource */
    private $process;

    /** @var array<resource> */
    private array $pipes = [];

    public function __construct(private readonly Site $site, private readonly string $library, private readonly int $id)
    {
        $command = ['setpriv', '--pdeathsig', 'KILL', \getenv('PHP_COMMAND') ?: \PHP_BINARY, __FILE__, 'process',
            $library, (string) $site->port, $site->mysql->socket];
        $this->process = \proc_open($command, [['pipe', 'r'], ['pipe', 'w'], \STDERR], $this->pipes);
        $this->answer();
    }

    /** @return array<string, mixed> */
    public function do(string $what, bool $pauses = false): array
    {
        $this->begin($what, $pauses);
        return $this->answer();
    }

    public function begin(string $what, bool $pauses = false): void
    {
        $ours = \str_starts_with($this->library, 'unstale');
        \fwrite($this->pipes[0], \json_encode(['do' => $what, 'id' => $this->id, 'pauses' => $pauses, 'ours' => $ours]) . "\n");
    }

    /** Lets a load go on. */
    public function continue(): void
    {
        \fwrite($this->pipes[0], "\n");
    }

    /** @return array<string, mixed> */
    public function answer(): array
    {
        return \json_decode((string) \fgets($this->pipes[1]), true) ?? throw new \Exception("a process of $this->library has ended");
    }

    public function kill(): void
    {
        \proc_terminate($this->process, 9);
        \proc_close($this->process);
    }
}

$site = new Site();
$rows = 1;

/** Runs one race. */
$race = static function (string $library, string $race) use ($site, &$rows): string {
    $site->pdo->exec('INSERT INTO products VALUES (' . ++$rows . ', 100)');
    $ours = \str_starts_with($library, 'unstale');
    $start = static fn (): Child => new Child($site, $library, $rows);
    $write = static function (bool $deletes) use ($site, $start, $ours): void {
        $writer = $start();
        $writer->do('write');
        if ($deletes && !$ours) {
            $writer->do('delete');
        }
        $writer->kill();
        $site->settle();
    };
    $reader = $start();
    $first = [];
    if ($race === 'died') {
        $reader->do('get');
        $write(false);
    } else {
        if ($race === 'refreshed') {
            $reader->do('get');
            \usleep(2_100_000); // Laravel's flexible counts seconds: 1 s must be over
            $reader->do('get', true);
            $reader->begin('after');
        } else {
            $reader->begin('get', true);
        }
        $answer = $reader->answer();
        if (!isset($answer['loading'])) {
            $reader->kill();
            return '';
        }
        $race === 'Redis empty' && $site->restart();
        $write(true);
        $reader->continue();
        $first = $reader->answer();
    }
    $last = $start();
    $value = $last->do('get');
    $last->kill();
    $reader->kill();
    return (int) ($value['value'] ?? 0) === 100 ? 'old' : (isset($first['error']) ? 'error' : 'new');
};

$code = 0;
$columns = ['deleted', 'refreshed', 'Redis empty', 'died'];
\printf("%-45s %s\n", '', \implode(' ', \array_map(static fn (string $name) => \str_pad($name, 12), $columns)));
foreach (\array_keys($libraries) as $library) {
    if (!\str_contains($library, $argv[1] ?? '')) {
        continue;
    }
    \printf('%-45s ', $library);
    foreach ($columns as $column) {
        $verdict = $race($library, $column);
        \printf('%-12s ', $verdict);
        $code = $verdict === 'old' && \str_starts_with($library, 'unstale') ? 1 : $code;
    }
    echo "\n";
}
exit($code);
