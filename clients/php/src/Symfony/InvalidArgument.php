<?php

declare(strict_types=1);

namespace Unstale\Symfony;

use Psr\Cache\InvalidArgumentException;

/** A key, tag or `$beta` that `Pool` does not take. */
final class InvalidArgument extends \InvalidArgumentException implements InvalidArgumentException
{
    /** @internal */
    public static function unlessText(mixed $value, string $what): string
    {
        $isText = \is_string($value) || $value instanceof \Stringable;
        if (!$isText || (string) $value === '') {
            throw new self("a $what " . ($isText ? 'is empty' : 'must be text, and is ' . \get_debug_type($value)));
        }
        return (string) $value;
    }
}
