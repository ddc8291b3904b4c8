<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Makes the columns of rows: entity, entity_id, params, trace and, if a row is delayed, due_at.
 *
 * @internal
 */
final class Row
{
    private const MOST_PARAMS = 65_536;

    /** The greatest integer up to which all integers are exact as floats. */
    private const EXACT = 2 ** 53 - 1;

    /**
     * Checks all invalidations, and returns their rows: those for now, and those that are delayed.
     *
     * @param iterable<Invalidation> $invalidations
     *
     * @return array{list<list<string|null>>, list<list<string|null>>}
     *
     * @throws FieldError
     */
    public static function all(iterable $invalidations): array
    {
        [$now, $later, $index] = [[], [], 0];
        foreach ($invalidations as $one) {
            try {
                $row = self::of($one);
            } catch (FieldError $error) {
                throw new FieldError($error->field, $error->problem, $index);
            }
            if ($one->notBefore === null) {
                $now[] = $row;
            } else {
                $later[] = $row;
            }
            $index++;
        }
        return [$now, $later];
    }

    /** @return list<string|null> */
    private static function of(Invalidation $one): array
    {
        $entity = self::text('entity', $one->entity, 64, true);
        $id = $one->id;
        if (!\is_string($id) && !\is_int($id)) {
            throw new FieldError('id', Text::kind($id) . ' is not an ID; pass text or an integer');
        }
        $id = self::typed('id', self::text('id', (string) $id, 255, true), $one->types['id'] ?? '');
        $trace = self::text('trace', $one->trace, 128, false);
        $due = $one->notBefore === null ? [] : [self::due($one->notBefore)];
        return [$entity, $id, self::params($one), $trace, ...$due];
    }

    private static function text(string $field, string $text, int $limit, bool $required): string
    {
        if ($text === '' && $required) {
            throw new FieldError($field, 'is empty; it is required');
        }
        self::checkUTF8($field, $text);
        $characters = Text::length($text);
        if ($characters > $limit) {
            throw new FieldError($field, "$characters characters are more than $limit");
        }
        return $text;
    }

    private static function checkUTF8(string $field, string $text, string $what = ''): void
    {
        if (!Text::isUTF8($text)) {
            throw new FieldError($field, $what . Text::quote(Text::clip($text)) . ' is not valid UTF-8');
        }
    }

    /** Checks the text of a value that has a type in the map. */
    private static function typed(string $field, string $text, string $type): string
    {
        $typed = match ($type) {
            'int' => Text::int($text),
            'uuid' => Text::uuid($text),
            default => $text,
        };
        $name = $type === 'int' ? 'an integer of 64 bits' : 'a UUID';
        return $typed ?? throw new FieldError($field, Text::quote(Text::clip($text)) . " is not $name, as in the map");
    }

    private static function due(\DateTimeInterface $time): string
    {
        $utc = \DateTimeImmutable::createFromInterface($time)->setTimezone(new \DateTimeZone('UTC'));
        $year = (int) $utc->format('Y');
        if ($year < 1970 || $year > 9999) {
            throw new FieldError('not_before', "year $year is outside 1970 to 9999");
        }
        return $utc->format('Y-m-d H:i:s.u');
    }

    private static function params(Invalidation $one): ?string
    {
        $params = $one->params;
        if ($one->rawParams !== '' && $params !== []) {
            throw new FieldError('params', 'params and rawParams are both set; set one');
        }
        foreach ($one->required as $name) {
            if ($one->rawParams === '' && !isset($params[$name])) {
                throw new FieldError(Params::field($name), 'is missing; the map requires it');
            }
        }
        if ($one->unknown !== null) {
            $problem = "is not an optional parameter of $one->entity in the map";
            throw new FieldError(Params::field($one->unknown), $problem);
        }
        \ksort($params, \SORT_STRING);
        $members = [];
        foreach ($params as $name => $value) {
            $members[] = self::member((string) $name, $value, $one->types[$name] ?? '');
        }
        $text = $members === [] ? $one->rawParams : '{' . \implode(',', $members) . '}';
        $bytes = \strlen($text);
        if ($bytes > self::MOST_PARAMS) {
            throw new FieldError('params', "$bytes bytes of JSON are more than " . self::MOST_PARAMS
                . '; pass ids, not documents');
        }
        if ($one->rawParams !== '') {
            $missing = \array_diff($one->required, Params::given($one->rawParams));
            foreach ($missing as $name) {
                throw new FieldError(Params::field($name), 'is missing; the map requires it');
            }
        }
        return $text === '' ? null : $text;
    }

    private static function member(string $name, mixed $value, string $type): string
    {
        if ($name === '') {
            throw new FieldError('params', 'a parameter has an empty name');
        }
        self::checkUTF8('params', $name, 'the name ');
        $field = Params::field($name);
        if (!\is_array($value) || !\array_is_list($value)) {
            return Text::quote($name) . ':' . self::scalar($field, $value, $type);
        }
        $scalars = [];
        foreach ($value as $i => $one) {
            try {
                $scalars[] = self::scalar($field, $one, $type);
            } catch (FieldError $error) {
                throw new FieldError($field, "element $i: $error->problem");
            }
        }
        return Text::quote($name) . ':[' . \implode(',', $scalars) . ']';
    }

    private static function scalar(string $field, mixed $value, string $type): string
    {
        if (\is_string($value)) {
            self::checkUTF8($field, $value);
        }
        $text = match (true) {
            \is_string($value) => $value,
            \is_int($value) => (string) $value,
            \is_bool($value) => $value ? 'true' : 'false',
            \is_float($value) => self::float($field, $value),
            $value === null => throw new FieldError($field, 'is null; leave it out'),
            default => throw new FieldError($field, Text::kind($value) . ' is neither a scalar nor a list of scalars;'
                . ' pass text, a number, a boolean or a list of these'),
        };
        $text = self::typed($field, $text, $type);
        return $type === 'uuid' || (\is_string($value) && $type === '') ? Text::quote($text) : $text;
    }

    private static function float(string $field, float $value): string
    {
        if (!\is_finite($value)) {
            throw new FieldError($field, "$value is not a number that JSON can represent");
        }
        if ($value !== \floor($value)) {
            return \sprintf('%.*h', -1, $value);
        }
        if (\abs($value) > self::EXACT) {
            $shown = Text::clip(\sprintf('%.0F', $value));
            throw new FieldError($field, "$shown is beyond 2^53, where floats are not exact; pass an integer or text");
        }
        return (string) (int) $value;
    }
}
