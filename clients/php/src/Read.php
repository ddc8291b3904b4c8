<?php

declare(strict_types=1);

namespace Unstale;

/** One value that a map's section `reads` names: its key in Redis, and for how long it is kept. */
final readonly class Read
{
    /** The longest time, in milliseconds: 365 days. */
    public const LONGEST = 365 * 24 * 3_600_000;

    private const NEGATIVE = 120_000;

    /** For how many milliseconds after `ttl` the value is still returned while one process loads. */
    public int $stale;

    /** For how many milliseconds it is kept that the loader found nothing. 0: never. */
    public int $negative;

    /**
     * Makes a read without a map. Use the methods of a generated class instead where one exists: a
     * key that the worker's map does not name is never invalidated.
     *
     * @param string       $key          the key in Redis
     * @param int          $ttl          for how many milliseconds the value is fresh, at least 1
     * @param string       $name         the entry of the section `reads`, for statistics
     * @param float        $jitter       by how much `ttl` varies at most, either way, as a part of
     *                                   it, below 1
     * @param int|null     $stale        default: a tenth of `ttl`
     * @param int          $staleOnError for how many milliseconds after `ttl` the value is still
     *                                   returned if the load fails
     * @param int|null     $negative     default: 120 s, or `ttl` if shorter
     * @param list<string> $tags         the value depends on these: invalidating one invalidates it
     * @param string|null  $error        why no invalidation would reach the value: it is then
     *                                   loaded and not cached
     *
     * @throws \ValueError for a time or a jitter outside of its limits
     */
    public function __construct(
        public string $key,
        public int $ttl,
        public string $name = 'other',
        public float $jitter = 0.15,
        ?int $stale = null,
        public int $staleOnError = 0,
        ?int $negative = null,
        public array $tags = [],
        public ?string $error = null,
    ) {
        $this->stale = $stale ?? \intdiv($ttl, 10);
        $this->negative = $negative ?? \min(self::NEGATIVE, $ttl);
        if (
            $ttl < 1 || \max($ttl, $this->stale, $staleOnError, $this->negative) > self::LONGEST
            || \min($this->stale, $staleOnError, $this->negative) < 0 || $jitter < 0 || !($jitter < 1)
        ) {
            throw new \ValueError("the read $name has a time that is not from 0 to " . self::LONGEST
                . ' ms, a ttl below 1, or a jitter that is not from 0 to below 1');
        }
    }
}
