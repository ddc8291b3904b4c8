<?php

// Reads pages until its standard input ends, and then prints how many: demo.php starts it.

declare(strict_types=1);

use Shop\CachedPages;
use Shop\PlainPages;
use Shop\Prices;
use Shop\Servers;

require __DIR__ . '/autoload.php';

[, $kind, $products] = $argv;
$mysql = Servers::mysql();
$prices = new Prices($mysql);
$pages = $kind === 'plain'
    ? new PlainPages(Servers::redis(), $prices)
    : new CachedPages(Servers::cache($mysql), $prices);
stream_set_blocking(STDIN, false);
for ($reads = 0; fgets(STDIN) === false && !feof(STDIN); $reads++) {
    $pages->page(random_int(1, (int) $products));
}
echo $reads, "\n";
