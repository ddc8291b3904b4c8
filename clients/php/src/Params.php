<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Reads the text of a JSON object of scalars and lists of scalars, in one pass that decodes no
 * values: numbers may have any form and size.
 *
 * @internal
 */
final class Params
{
    private const EARLY = 'the JSON ends too early';

    private int $at = 0;

    /** @var array<string, bool> whether each name has a value */
    private array $names = [];

    private function __construct(private readonly string $source)
    {
    }

    /**
     * Returns the names that the object gives a value: null gives none, an empty list does.
     *
     * @return list<string>
     *
     * @throws FieldError for other texts, as the worker refuses them
     */
    public static function given(string $source): array
    {
        if (!Text::isUTF8($source)) {
            throw self::fail('the parameters are not valid UTF-8');
        }
        $params = new self($source);
        $first = $params->peek();
        match ($first) {
            'n' => $params->word('null'),
            '{' => $params->members('}', $params->member(...)),
            '' => throw self::fail(self::EARLY),
            default => throw self::fail('the parameters must be a JSON object of scalars and lists of scalars'),
        };
        if ($params->peek() !== '') {
            throw self::fail('something follows the JSON object');
        }
        return \array_map(strval(...), \array_keys(\array_filter($params->names)));
    }

    /** Returns the field of a parameter in errors. */
    public static function field(string $name): string
    {
        return $name === '' ? 'params' : 'params.' . Text::clip($name);
    }

    private static function fail(string $problem): FieldError
    {
        return new FieldError('params', $problem);
    }

    private function members(string $end, callable $member): void
    {
        $this->at++;
        if ($this->peek() !== $end) {
            for ($member(); $this->peek() !== $end; $member()) {
                $this->expect(',');
            }
        }
        $this->at++;
    }

    private function member(): void
    {
        $name = $this->string();
        try {
            if (isset($this->names[$name])) {
                throw self::fail('the name is given twice');
            }
            $this->names[$name] = false;
            $this->expect(':');
            $this->names[$name] = $this->value();
        } catch (FieldError $error) {
            throw new FieldError(self::field($name), $error->problem);
        }
    }

    private function value(): bool
    {
        if ($this->peek() !== '[') {
            return $this->scalar();
        }
        $this->members(']', function (): void {
            if ($this->peek() === '[') {
                throw self::fail('a list within a list is not a scalar');
            }
            $this->scalar();
        });
        return true;
    }

    /** Reads a scalar, and reports whether it is a value: null is none. */
    private function scalar(): bool
    {
        $c = $this->peek();
        if ($c === '{') {
            throw self::fail('an object is neither a scalar nor a list of scalars');
        }
        if ($c === 'n') {
            $this->word('null');
            return false;
        }
        if ($c === '' || !\str_contains('"tf-0123456789', $c)) {
            throw $this->unexpected('a value');
        }
        try {
            match ($c) {
                '"' => $this->string(),
                't' => $this->word('true'),
                'f' => $this->word('false'),
                default => $this->number(),
            };
        } catch (FieldError $error) {
            throw self::fail("decode value: $error->problem");
        }
        return true;
    }

    private function string(): string
    {
        $this->expect('"');
        $text = $this->eat('(?:[^"\\\\\x00-\x1f]|\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4}))*+');
        $decoded = \json_decode("\"$text\"", false, 1);
        if ($decoded === null) {
            throw self::fail('a lone surrogate (\ud800 to \udfff) is not a character');
        }
        $rest = \substr($this->source, $this->at, 6);
        if (\preg_match('/^(\\\\(u.{0,3})?)?$/Ds', $rest) === 1) {
            throw self::fail(self::EARLY);
        }
        if ($rest[0] !== '"') {
            $escape = 'an unknown escape in a string';
            throw self::fail($rest[0] === '\\' ? $escape : 'a control character in a string must be escaped');
        }
        $this->at++;
        return $decoded;
    }

    private function number(): void
    {
        $this->eat('-');
        $this->digits('0|[1-9][0-9]*+');
        if ($this->eat('\.') !== '') {
            $this->digits('[0-9]++');
        }
        if ($this->eat('[eE][+-]?') !== '') {
            $this->digits('[0-9]++');
        }
    }

    private function digits(string $pattern): void
    {
        if ($this->eat($pattern) === '') {
            throw $this->unexpected('a digit');
        }
    }

    private function word(string $text): void
    {
        if (\substr($this->source, $this->at, \strlen($text)) !== $text) {
            throw $this->unexpected('a value');
        }
        $this->at += \strlen($text);
    }

    private function expect(string $c): void
    {
        if ($this->peek() !== $c) {
            throw $this->unexpected($c);
        }
        $this->at++;
    }

    /** Skips white space, and returns the next byte, '' at the end. */
    private function peek(): string
    {
        $this->at += \strspn($this->source, " \t\n\r", $this->at);
        return $this->source[$this->at] ?? '';
    }

    private function eat(string $pattern): string
    {
        $found = \preg_match("~\\G(?:$pattern)~", $this->source, $match, 0, $this->at) === 1 ? $match[0] : '';
        $this->at += \strlen($found);
        return $found;
    }

    private function unexpected(string $want): FieldError
    {
        if ($this->peek() === '') {
            return self::fail(self::EARLY);
        }
        \preg_match('/\G./su', $this->source, $c, 0, $this->at);
        $quoted = match ($c[0]) {
            '"' => '"',
            "'" => "\\'",
            default => \substr(Text::quote($c[0]), 1, -1),
        };
        return self::fail("not JSON: '$quoted' at byte $this->at, want $want");
    }
}
