<?php

// The store of README.md for config/cache.php, which application.php uses.

declare(strict_types=1);

return [
'unstale' => [
    'driver' => 'unstale',
    'connection' => 'default', // of database.redis: the server and database of the worker
    'plain' => 'redis',        // the store of put, increment and locks
    'prefix' => '',            // what keys begin with that are given as text
    'database' => null,        // the connection to the primary, which write tokens ask
    'options' => [],           // of Unstale\Options, such as 'timeout' => 200
],
];
