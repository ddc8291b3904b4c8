<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The load of one key, and the lease that it is stored under.
 *
 * @internal
 */
final class Job
{
    /** Of what the load replaces, '' for nothing. */
    public string $hash = '';

    /** The random text of the lease: it serves one load. */
    public string $token = '';

    /** The value of the lease, null without one. */
    public ?string $lease = null;

    /** @var array<string> by tag, from before the load; '' for a tag that may not be stored */
    public array $versions = [];

    /** Redis may have a lease that this job must not use, or is away. */
    public bool $isLost = false;

    /** When to give up waiting for the loads of others. */
    public float $until = 0;

    /** The milliseconds until the next request, and what the pause after that is. */
    public float $wait = 0;
    public float $pause = Leases::FIRST_PAUSE;

    /** The milliseconds that are left of the lease of others, and how many of them had it. */
    public int $left = 0;
    public int $holders = 0;

    /** What a load of others has brought. */
    public ?Entry $entry = null;

    /**
     * @param list<string> $tags    of the read, and of the entry that is replaced: the loader may name them again
     * @param float        $longest the longest life of an entry, in milliseconds
     * @param bool         $waits   while others load
     * @param bool         $mayTake what others store
     */
    public function __construct(
        public readonly Read $read,
        public array $tags,
        public readonly float $longest,
        public readonly bool $waits,
        public readonly bool $mayTake,
    ) {
    }
}
