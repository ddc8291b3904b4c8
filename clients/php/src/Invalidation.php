<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What a caller changed. Methods of generated classes return it, and the map lists the keys that
 * are stale then. `enqueue` checks it.
 */
final readonly class Invalidation
{
    /**
     * @param string                    $entity    a name from the map, such as `product`, of at
     *                                             most 64 characters
     * @param int|string                $id        the ID of the entity, exactly as in keys, of at
     *                                             most 255 characters
     * @param array<string, mixed>      $params    other values that the map needs to make the keys:
     *                                             text, numbers, booleans or lists of these. If a
     *                                             value changes, pass the old and the new one in a
     *                                             list, because the keys of both are stale
     * @param string                    $rawParams replaces `params` by the text of a JSON object,
     *                                             whose numbers keep their form
     * @param list<string>              $required  parameters that the map requires: a row without
     *                                             one would become a dead letter, so it is refused
     * @param array<string, 'int'|'uuid'> $types   the types of `id` and of parameters in the map;
     *                                             others are text
     * @param string                    $trace     text that the worker records, such as a W3C
     *                                             traceparent, of at most 128 characters
     * @param \DateTimeInterface|null   $notBefore the earliest time at which the worker processes
     *                                             the row, from 1970 to 9999; null: no delay
     * @param string|null               $unknown   a parameter that the map does not have: it is
     *                                             refused
     */
    public function __construct(
        public string $entity,
        public mixed $id,
        public array $params = [],
        public string $rawParams = '',
        public array $required = [],
        public array $types = [],
        public string $trace = '',
        public ?\DateTimeInterface $notBefore = null,
        public ?string $unknown = null,
    ) {
    }

    /**
     * Called by generated code.
     *
     * @param array<string, mixed>        $required the parameters that the map requires
     * @param array<string, mixed>        $optional those of the caller
     * @param list<string>                $names    those that the caller may give
     * @param array<string, 'int'|'uuid'> $types
     */
    public static function of(
        string $entity,
        mixed $id,
        array $required = [],
        array $optional = [],
        array $names = [],
        array $types = [],
    ): self {
        $unknown = \array_key_first(\array_diff_key($optional, \array_flip($names)));
        $unknown = $unknown === null ? null : (string) $unknown;
        return new self($entity, $id, $required + $optional, '', \array_keys($required), $types, unknown: $unknown);
    }

    /** Returns a copy with a trace. */
    public function withTrace(string $trace): self
    {
        return new self(...['trace' => $trace] + \get_object_vars($this));
    }

    /** Returns a copy that the worker processes only from a time on. */
    public function withNotBefore(\DateTimeInterface $notBefore): self
    {
        return new self(...['notBefore' => $notBefore] + \get_object_vars($this));
    }
}
