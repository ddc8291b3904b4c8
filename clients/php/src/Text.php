<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The texts of values in keys and rows, for generated code and this client.
 *
 * @internal
 */
final class Text
{
    /** Returns the text of an integer of 64 bits, null for anything else. */
    public static function int(mixed $value): ?string
    {
        $text = \is_int($value) ? (string) $value : $value;
        return \is_string($text) && (string) (int) $text === $text ? $text : null;
    }

    /** Returns text of 1 to 255 code points of UTF-8, null for anything else. */
    public static function row(mixed $value): ?string
    {
        $text = \is_int($value) ? (string) $value : $value;
        return \is_string($text) && $text !== '' && self::isUTF8($text) && self::length($text) <= 255 ? $text : null;
    }

    /** Returns a UUID in lower case, null for anything else. */
    public static function uuid(mixed $value): ?string
    {
        $isUUID = \is_string($value) && \preg_match('/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/Di', $value) === 1;
        return $isUUID ? \strtolower($value) : null;
    }

    public static function isUTF8(string $text): bool
    {
        return \preg_match('//u', $text) === 1;
    }

    /** Returns the number of code points of UTF-8: of the bytes that do not continue one. */
    public static function length(string $text): int
    {
        return \strlen(\preg_replace('/[\x80-\xbf]+/', '', $text));
    }

    /** Returns text in quotes, as in JSON. Bytes that are not UTF-8 become \xff, as Go shows them. */
    public static function quote(string $text): string
    {
        if (self::isUTF8($text)) {
            return \json_encode($text, \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_UNICODE | \JSON_UNESCAPED_SLASHES
                | \JSON_UNESCAPED_LINE_TERMINATORS);
        }
        $quoted = '';
        for ($at = 0; $at < \strlen($text); $at += \strlen($one)) {
            $one = \preg_match('/\G./su', $text, $found, 0, $at) === 1 ? $found[0] : $text[$at];
            $quoted .= self::isUTF8($one) ? \substr(self::quote($one), 1, -1) : \sprintf('\x%02x', \ord($one));
        }
        return "\"$quoted\"";
    }

    /** Keeps a text that is part of an error short. */
    public static function clip(string $text): string
    {
        return \strlen($text) <= 40 ? $text : \substr($text, 0, 40) . '...';
    }

    /** Returns a value in an error: text as it is, and the type of what is neither text nor a number. */
    public static function shown(mixed $value): string
    {
        return match (true) {
            \is_string($value) => self::quote(self::clip($value)),
            \is_int($value), \is_float($value), \is_bool($value), $value === null => \var_export($value, true),
            default => self::kind($value),
        };
    }

    /** Names the type of a value that is not accepted. */
    public static function kind(mixed $value): string
    {
        return match (true) {
            $value === null => 'null',
            \is_array($value) => \array_is_list($value) ? 'a list' : 'an array with keys',
            \is_bool($value) => 'a boolean',
            \is_object($value) => 'an object of ' . $value::class,
            default => 'a ' . \get_debug_type($value),
        };
    }
}
