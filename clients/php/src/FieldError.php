<?php

declare(strict_types=1);

namespace Unstale;

/** A field of an invalidation cannot be written. Nothing was inserted. */
final class FieldError extends \InvalidArgumentException
{
    /**
     * @param string $field `entity`, `id`, `params`, `params.NAME`, `trace` or `not_before`
     * @param int    $index the position among the invalidations of the call, from 0
     */
    public function __construct(
        public readonly string $field,
        public readonly string $problem,
        public readonly int $index = 0,
    ) {
        parent::__construct("invalidation $index: $field: $problem");
    }
}
