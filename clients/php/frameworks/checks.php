<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

/** Fails a test unless both are the same. */
function same(mixed $want, mixed $got, string $what = ''): void
{
    if ($want !== $got) {
        throw new \Exception(\trim("$what: wanted " . \json_encode($want) . ', got ' . \json_encode($got), ': '));
    }
}

/** Fails a test unless a call throws an exception of a class, which it returns. */
function throws(string $class, callable $call): \Throwable
{
    try {
        $call();
    } catch (\Throwable $error) {
        return $error instanceof $class ? $error : throw $error;
    }
    throw new \Exception("wanted a $class");
}
