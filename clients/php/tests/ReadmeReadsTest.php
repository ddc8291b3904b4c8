<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** The code of README.md about reads and connections. */
final class ReadmeReadsTest extends ReaderTest
{
    public function testTheCodeRuns(): void
    {
        \putenv('APP_ENV=dev');
        if (!\class_exists('App\ShopCache', false)) {
            $command = [\realpath(MySQL::UNSTALE), 'map', 'generate', '--php', '--class', 'App\ShopCache',
                \realpath(__DIR__ . '/../../../mapping.yaml')];
            \exec(\implode(' ', \array_map(\escapeshellarg(...), $command)), $lines, $code);
            self::assertSame(0, $code);
            $file = \tempnam(\sys_get_temp_dir(), 'unstale-map-');
            \file_put_contents($file, \implode("\n", $lines));
            require $file;
            \unlink($file);
        }
        MySQL::shared()->database('docs');
        [$dsn, $user, $password] = [MySQL::shared()->dsn('docs'), 'root', ''];
        $pdo = new \PDO($dsn, $user, $password);
        $pdo->exec('CREATE TABLE products (id INT PRIMARY KEY, name TEXT, category_id INT, sale_ends_in INT)');
        $pdo->exec("INSERT INTO products VALUES (42, 'a', 7, 60)");
        $server = $this->start();
        [$redisUrl, $host, $port] = [$server->url(), '127.0.0.1', $server->port];
        $results = [];
        require __DIR__ . '/readme-reads.php';
        self::assertSame('a', $results[0]['name']);
        // The first value was not stored: only its loader names its tag.
        self::assertSame([['name' => 'loaded'], ['name' => 'loaded']], [$results[1], $results[2]]);
        self::assertSame(1, $this->cache($connections)->fetch(new \Unstale\Read('k', 1000), static fn (): int => 1));
        self::assertSame(1, $server->admin()->exists('k'));
        $pdo->exec('DROP DATABASE docs');
    }
}
