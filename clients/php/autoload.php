<?php

// Loads the classes of this folder without Composer, for its tests and tools.

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    foreach (['Unstale\\Tests\\' => '/tests/', 'Unstale\\' => '/src/'] as $prefix => $folder) {
        $file = __DIR__ . $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
            return;
        }
    }
});
