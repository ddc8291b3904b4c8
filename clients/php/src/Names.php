<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The names in Redis that belong to a key or a tag, by docs/protocol.md.
 *
 * @internal
 */
final class Names
{
    /** Returns the name of a tag's version. */
    public static function stamp(string $tag): string
    {
        return "stamp:$tag";
    }

    /** Returns the lease of a key: the right to store one entry. Null: it cannot have one, so store nothing. */
    public static function lease(string $key): ?string
    {
        return self::beside('lock:fill:', $key);
    }

    /** Returns the tombstone of a key: while it exists, nothing is stored. Null as for `lease`. */
    public static function hold(string $key): ?string
    {
        return self::beside('lock:hold:', $key);
    }

    /**
     * Reports whether all tags can have versions. A value with another tag is not stored.
     *
     * @param list<string> $tags
     */
    public static function areStampable(array $tags): bool
    {
        foreach ($tags as $tag) {
            if (self::hold(self::stamp($tag)) === null || !Text::isUTF8($tag)) {
                return false;
            }
        }
        return true;
    }

    /** Returns a name in the slot of a key: a hash tag is kept, and a key without braces is wrapped in them. */
    private static function beside(string $prefix, string $key): ?string
    {
        if (\strpbrk($key, '{}') === false) {
            return $key === '' ? null : "$prefix{{$key}}";
        }
        $isTagged = \preg_match('/^[^{]*\{[^}]+\}/', $key) === 1;
        $isWrapped = \preg_match('/^\{[^{}]+\}$/D', $key) === 1; // the text inside has the same lease
        return $isTagged && !$isWrapped ? $prefix . $key : null;
    }
}
