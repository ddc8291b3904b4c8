<?php

declare(strict_types=1);

namespace Unstale;

/**
 * An entry in Redis that can be read. Times are milliseconds by the clock of Redis, 0 if it has none.
 *
 * @internal
 */
final readonly class Entry
{
    // What a reader can use a key for: nothing (load), nothing and leave it alone, only if the load
    // fails, until a new value is loaded, or as it is.
    public const MISS = 0;
    public const FOREIGN = 1;
    public const ON_ERROR = 2;
    public const STALE = 3;
    public const FRESH = 4;

    /** The most bytes of a value that was compressed. */
    public const LONGEST = 64 << 20;

    private const CHUNK = 8192;
    private const DEEPEST = 512; // of a value: arrays in arrays, and what they have
    private const WRITE = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE
        | \JSON_PRESERVE_ZERO_FRACTION;

    /** @param array<string> $tags each tag with its version before the load */
    private function __construct(
        public int $e,
        public int $s,
        public int $o,
        /** The loader found nothing, and the value is null. */
        public bool $isNegative,
        public array $tags,
        public mixed $value,
    ) {
    }

    /** Parses an entry of format 1 or 2. False: of another format or codec, it stays. Null: it cannot be read. */
    public static function parse(string $bytes): self|false|null
    {
        $fields = \json_decode($bytes, true, self::DEEPEST + 1, \JSON_BIGINT_AS_STRING);
        if ($fields === null) {
            // The first line names the format. After an unknown one, anything may follow.
            $fields = \json_decode(\strstr($bytes, "\n", true) ?: '', true, self::DEEPEST, \JSON_BIGINT_AS_STRING);
            if (!\is_array($fields) || ($fields['f'] ?? 1) === 1) {
                return null;
            }
        }
        if (!\is_array($fields)) {
            return null;
        }
        $f = $fields['f'] ?? 1;
        $c = $fields['c'] ?? '';
        $v = $fields['v'] ?? null;
        $t = $fields['t'] ?? [];
        if ($f !== 1 && $f !== 2) {
            return false;
        }
        if ($c !== '' && $c !== 'gzip') {
            return \is_string($c) ? false : null;
        }
        $e = $fields['e'] ?? 0;
        $s = $fields['s'] ?? 0;
        $o = $fields['o'] ?? 0;
        $n = $fields['n'] ?? 0;
        if (
            $e === 0 || !\is_int($e) || !\is_int($s) || !\is_int($o) || !\is_int($n) || !\is_int($fields['b'] ?? 0)
            || !\is_int($fields['d'] ?? 0) || !\is_int($fields['i'] ?? 0) || !\is_array($t)
        ) {
            return null;
        }
        foreach ($t as $version) {
            if (!\is_string($version)) {
                return null;
            }
        }
        if ($f === 2 || $c !== '') {
            $packed = $f === 2 ? \substr(\strstr($bytes, "\n") ?: '', 1) : self::unquoted($v);
            $text = $c === '' ? $packed : self::unpacked((string) $packed);
            $v = \json_decode((string) $text, true, self::DEEPEST, \JSON_BIGINT_AS_STRING);
            if ($v === null && $text !== 'null') {
                return null;
            }
        } elseif ($v === null && !\array_key_exists('v', $fields)) {
            return null;
        }
        return new self($e, $s, $o, $n !== 0, $t, $n === 0 ? $v : null);
    }

    /**
     * Returns what the entry is good for, for a reader that would store it with `$tags`; or a list of
     * tags whose versions are needed first.
     *
     * @param list<string>  $tags
     * @param array<string> $versions of tags that Redis was asked for, '' for none
     *
     * @return int|list<string>
     */
    public function judge(array $tags, array $versions, float $now): int|array
    {
        $state = self::MISS;
        if ($now < $this->e) {
            $state = self::FRESH;
        } elseif (!$this->isNegative && $now < \max($this->s, $this->o)) {
            $state = $now < $this->s ? self::STALE : self::ON_ERROR;
        }
        if ($state === self::MISS || $tags === [] && $this->tags === []) {
            return $state;
        }
        foreach ($tags as $tag) {
            if (!isset($this->tags[$tag])) {
                return self::MISS;
            }
        }
        $unknown = [];
        foreach ($this->tags as $tag => $version) {
            $found = $versions[$tag] ?? null;
            if ($found === null) {
                $unknown[] = (string) $tag;
            } elseif ($found === '' || $found !== $version) {
                return self::MISS;
            }
        }
        return $unknown === [] ? $state : $unknown;
    }

    /** Returns the JSON of a value. @throws \JsonException if it has none */
    public static function encode(mixed $value): string
    {
        return \json_encode($value, self::WRITE, self::DEEPEST);
    }

    /** Returns what the JSON of a value says: arrays for objects. Integers beyond 64 bits are text. */
    public static function decode(string $json): mixed
    {
        return \json_decode($json, true, self::DEEPEST, \JSON_BIGINT_AS_STRING | \JSON_THROW_ON_ERROR);
    }

    /**
     * Returns the text of an entry of format 1: fields that are 0 are left out, and `v` comes last.
     *
     * @param array<string, int|string> $head
     * @param array<string>             $tags
     */
    public static function format(array $head, array $tags, string $json): string
    {
        $text = '';
        foreach ($head as $name => $number) {
            $text .= $number === 0 ? '' : "\"$name\":$number,";
        }
        $text .= $tags === [] ? '' : '"t":' . self::encode((object) $tags) . ',';
        return "{{$text}\"v\":$json}";
    }

    private static function unquoted(mixed $text): ?string
    {
        $isBase64 = \is_string($text) && \strlen($text) % 4 === 0
            && \preg_match('~^[A-Za-z0-9+/]*={0,2}$~D', $text) === 1;
        return $isBase64 ? (\base64_decode($text, true) ?: null) : null;
    }

    /** Returns the value of one or several members of gzip, null for anything else. */
    private static function unpacked(string $packed): ?string
    {
        $value = '';
        while ($packed !== '') {
            $member = \inflate_init(\ZLIB_ENCODING_GZIP);
            for ($at = 0; \inflate_get_status($member) !== \ZLIB_STREAM_END; $at += self::CHUNK) {
                $more = $at < \strlen($packed) ? @\inflate_add($member, \substr($packed, $at, self::CHUNK)) : false;
                if ($more === false || \strlen($value .= $more) > self::LONGEST) {
                    return null;
                }
            }
            $packed = \substr($packed, \inflate_get_read_len($member));
        }
        return $value;
    }
}
