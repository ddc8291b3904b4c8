<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What Redis has under a key.
 *
 * @internal
 */
final readonly class Found
{
    /**
     * @param int         $state  a constant of Entry
     * @param string|null $bytes  of the entry
     * @param bool        $isAway Redis does not answer: no lease is asked for
     */
    public function __construct(
        public int $state,
        public ?string $bytes = null,
        public ?Entry $entry = null,
        public bool $isAway = false,
    ) {
    }
}
