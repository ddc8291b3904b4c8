<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What Redis has under a key.
 *
 * @internal
 */
final class Found
{
    /**
     * @param int         $state  a constant of Entry
     * @param string|null $bytes  of the entry
     * @param bool        $isAway Redis does not answer: no lease is asked for
     */
    public function __construct(
        public int $state,
        public readonly ?string $bytes = null,
        public readonly ?Entry $entry = null,
        public readonly bool $isAway = false,
    ) {
    }

    /** Returns the value of an expired entry. */
    public function stale(): Result
    {
        return new Result($this->entry?->value, 'redis', true);
    }
}
