<?php

// Loads the shop and the client of this checkout. An application has Composer's vendor/autoload.php.

declare(strict_types=1);

require __DIR__ . '/../../clients/php/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Shop\\')) {
        require __DIR__ . '/src/' . substr($class, 5) . '.php';
    }
});
