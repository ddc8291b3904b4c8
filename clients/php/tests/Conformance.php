<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** The cases of protocol/conformance. */
final class Conformance
{
    public const FOLDER = __DIR__ . '/../../../protocol/conformance/';

    /** @return array<string, mixed> */
    public static function file(string $name): array
    {
        $text = \file_get_contents(self::FOLDER . "$name.json");
        return \json_decode($text, true, flags: \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING);
    }

    /**
     * Returns the cases of a file for a data provider.
     *
     * @return array<string, array{array<string, mixed>}>
     */
    public static function cases(string $name): array
    {
        $cases = [];
        foreach (self::file($name)['cases'] as $i => $case) {
            $cases["$i: $case[reason]"] = [$case];
        }
        return $cases;
    }

    /** @param string|array<string, mixed> $field */
    public static function bytes(string|array $field): string
    {
        return match (true) {
            \is_string($field) => $field,
            isset($field['base64']) => \base64_decode($field['base64'], true),
            default => \str_repeat($field['repeat'], $field['times']),
        };
    }
}
