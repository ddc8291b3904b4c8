<?php

// Changes prices while others read them: first with plain GET and SET, then with the client. Both have
// the same writer, the same worker and the same readers. It then counts old prices: those that a read
// returns although the worker has processed all changes before it began. They stay until their TTL ends.

declare(strict_types=1);

use Shop\CachedPages;
use Shop\Pages;
use Shop\PlainPages;
use Shop\Prices;
use Shop\Servers;
use Shop\ShopCache;

require __DIR__ . '/autoload.php';

const CHANGES = 200; // per round
const READERS = 16; // processes
const PRODUCTS = 40;
$rounds = (int) (getenv('ROUNDS') ?: 10);

$mysql = Servers::mysql();
$redis = Servers::redis();
$prices = new Prices($mysql);
ShopCache::map()->check();

/** Waits until the worker has processed all rows. */
$processed = static function () use ($mysql): void {
    for ($end = microtime(true) + 30; microtime(true) < $end; usleep(5000)) {
        if ($mysql->query('SELECT 1 FROM cache_outbox LIMIT 1')->fetchAll() === []) {
            return;
        }
    }
    throw new RuntimeException('the worker has not processed a change within 30 s');
};

/** Changes prices under readers, and returns the number of old prices and of all reads. */
$race = static function (string $kind, Pages $pages) use ($mysql, $redis, $prices, $processed, $rounds): array {
    $ids = range(1, PRODUCTS);
    $redis->unlink(array_map(static fn (int $id): string => ShopCache::productPage($id)->key, $ids));
    $readers = [];
    for ($i = 0; $i < READERS; $i++) {
        $command = [PHP_BINARY, __DIR__ . '/reader.php', $kind, (string) PRODUCTS];
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
        $readers[] = [$process, $pipes];
    }
    $old = 0;
    $cents = 1000;
    for ($round = 0; $round < $rounds; $round++) {
        for ($change = 0; $change < CHANGES; $change++) {
            $prices->change(random_int(1, PRODUCTS), ++$cents);
        }
        $processed();
        $current = $mysql->query('SELECT id, price_cents FROM products')->fetchAll(PDO::FETCH_KEY_PAIR);
        foreach ($ids as $id) {
            $old += $pages->page($id)['cents'] === (int) $current[$id] ? 0 : 1;
        }
    }
    $reads = 0;
    foreach ($readers as [$process, $pipes]) {
        fclose($pipes[0]);
        $reads += (int) stream_get_contents($pipes[1]);
        if (proc_close($process) !== 0) {
            throw new RuntimeException('a reader failed');
        }
    }
    return [$old, $reads];
};

$mysql->exec('CREATE TABLE IF NOT EXISTS products (id INT PRIMARY KEY, price_cents INT NOT NULL)');
$mysql->exec('CREATE TABLE IF NOT EXISTS product_categories '
    . '(product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))');
foreach (range(1, PRODUCTS) as $id) {
    $mysql->exec("REPLACE INTO products VALUES ($id, 1000)");
}

$plain = $race('plain', new PlainPages($redis, $prices));
$cached = $race('cached', new CachedPages(Servers::cache($mysql), $prices));

printf("%d changes of prices each, in %d rounds, while %d processes read. After each round, when the worker had\n"
    . "processed all changes, %d prices were read again:\n\n", $rounds * CHANGES, $rounds, READERS, PRODUCTS);
foreach (['plain GET and SET' => $plain, 'unstale/client' => $cached] as $name => [$old, $reads]) {
    printf("  %-18s %4d old prices, after %s reads during the changes\n", $name, $old, number_format($reads));
}
if ($cached[0] > 0) {
    fwrite(STDERR, "\nThe client returned an old price. This is a bug: please report it.\n");
}
if ($plain[0] === 0) {
    fwrite(STDERR, "\nThe race did not happen with plain GET and SET. Run it again with ROUNDS=100.\n");
}
exit($cached[0] > 0 || $plain[0] === 0 ? 1 : 0);
