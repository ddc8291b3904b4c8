<?php

declare(strict_types=1);

namespace Unstale;

/** A value with its source. */
final readonly class Result
{
    /**
     * @param mixed  $value  null: it does not exist
     * @param string $source 'redis', 'loader', or 'memory' with `Options::$memory`
     * @param bool   $stale  whether it has expired: see `Read::$stale` and `Read::$staleOnError`
     */
    public function __construct(public mixed $value, public string $source, public bool $stale = false)
    {
    }
}
