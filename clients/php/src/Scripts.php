<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Commands that run the files of lua/, which explain their keys, arguments and answers.
 *
 * @internal
 */
final class Scripts
{
    /** The SHA-1 of each file. */
    public const SHA1 = [
        'lease' => 'b13588bd14b47799ec869a228ef16bf9eea628b5',
        'stamp' => '37e74d8cc7eb56804c8465a823bd57730f702adf',
        'fill' => '4d43d216fe2570afe0e52f0eede8aea67d6eb6e9',
        'release' => '2643289e13ca562e828830512521051e9a6146e3',
    ];

    /**
     * Returns an EVALSHA.
     *
     * @param list<string>     $keys
     * @param list<string|int> $arguments
     *
     * @return list<string|int>
     */
    public static function command(string $script, array $keys, array $arguments): array
    {
        return ['EVALSHA', self::SHA1[$script], \count($keys), ...$keys, ...$arguments];
    }

    /**
     * Returns the EVAL with the whole text of an EVALSHA, for a server that does not have it.
     *
     * @param list<string|int> $command
     *
     * @return list<string|int>
     */
    public static function whole(array $command): array
    {
        $name = \array_search($command[1], self::SHA1, true);
        $text = \file_get_contents(__DIR__ . "/../lua/$name.lua");
        return ['EVAL', $text, ...\array_slice($command, 2)];
    }
}
