<?php

// Runs the tests of the adapters with the frameworks of this PHP: "php run.php", or "php run.php NAME"
// for some. PHPUnit is not used, because the PHP with Laravel has a version that the other does not.

declare(strict_types=1);

namespace Unstale\Frameworks;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/Site.php';
require __DIR__ . '/checks.php';
require __DIR__ . '/../../../examples/php-shop/src/ShopCache.php';

\error_reporting(\E_ALL);
\set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    // Deprecations of frameworks, and what they silence with @, are not ours.
    $ours = \str_contains($file, '/clients/php/');
    return !$ours || (\error_reporting() & $level) === 0 || throw new \ErrorException($text, 0, $level, $file, $line);
});

\Shop\ShopCache::map()->use(['APP_ENV' => 'prod']);
$site = new Site();
[$passed, $failed] = [0, 0];
foreach (['Symfony', 'Doctrine', 'Laravel'] as $framework) {
    $tests = require __DIR__ . "/$framework.php";
    if ($tests === null) {
        echo "$framework: not in this PHP\n";
        continue;
    }
    foreach ($tests as $name => $test) {
        if (!\str_contains("$framework: $name", $argv[1] ?? '')) {
            continue;
        }
        try {
            $site->clear();
            $test($site);
            $passed++;
        } catch (\Throwable $error) {
            $failed++;
            echo "FAILED: $framework: $name\n$error\n";
        }
    }
}
echo \PHP_VERSION . ', phpredis ' . \phpversion('redis') . "\n$passed passed, $failed failed\n";
exit($failed > 0 || $passed === 0 ? 1 : 0);
