<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What to do about one key that was not found fresh: its load, and the lease that it is stored under.
 *
 * @internal
 */
final class Job
{
    /** What a reader can use the key for, a constant of Entry. */
    public readonly int $state;

    /**
     * Of the read, and of the entry that is replaced: the loader may name them again.
     *
     * @var list<string>
     */
    public readonly array $tags;

    /** The longest life of an entry, in milliseconds. */
    public readonly float $longest;

    /** The SHA-1 of the bytes that the load replaces, '' for nothing. */
    public string $hash;

    /** The random text of the lease: it serves one load. */
    public string $token = '';

    /** The value of the lease, null without one. */
    public ?string $lease = null;

    /** @var array<string> by tag, from before the load; '' for a tag that may not be stored */
    public array $versions = [];

    /** When to give up waiting for the loads of others. */
    public float $until = 0;

    /** The milliseconds until the next request for the lease, and what the pause after that is. Null: none. */
    public ?float $wait = null;
    public float $pause = Leases::FIRST_PAUSE;

    /** The milliseconds that are left of the lease of others, and how many of them had it. */
    public int $left = 0;
    public int $holders = 0;

    /** What a load of others has brought. */
    public ?Entry $brought = null;

    /** The JSON of what was loaded. */
    public string $json = '';

    /** @param bool $mustLoad no stored value may be returned */
    public function __construct(
        public readonly Read $read,
        public readonly Found $found,
        public readonly bool $mustLoad,
    ) {
        $this->state = $mustLoad && $found->state !== Entry::FOREIGN ? Entry::MISS : $found->state;
        $tags = \array_keys(\array_flip($read->tags) + ($found->entry?->tags ?? []));
        $tags = \array_map(\strval(...), $tags);
        $this->tags = Names::areStampable($tags) ? $tags : $read->tags;
        $kept = \max($read->ttl + \max($read->stale, $read->staleOnError), $read->negative);
        $this->longest = $kept * (1 + $read->jitter);
        $this->hash = $found->bytes === null ? '' : \sha1($found->bytes);
    }

    /** Returns the value of an expired entry. */
    public function expired(): Result
    {
        return new Result($this->found->entry?->value, 'redis', true);
    }

    /**
     * Returns for how many milliseconds the loaded value is fresh, stale, and kept for errors.
     *
     * @param int|null $ttl of the loader, which the value never exceeds
     *
     * @return array{fresh: int, stale: int, onError: int}
     */
    public function life(?int $ttl): array
    {
        [$fresh, $stale, $onError, $most] = match (true) {
            $this->json === 'null' => [$this->read->negative, 0, 0, 1],
            $ttl !== null => [$ttl, 0, 0, 0],
            default => [$this->read->ttl, $this->read->stale, $this->read->staleOnError, 1],
        };
        $spread = $this->read->jitter * \random_int(-1_000_000, $most * 1_000_000) / 1e6;
        $fresh = $fresh < 1 ? 0 : \max((int) ($fresh * (1 + $spread)), 1);
        return ['fresh' => $fresh, 'stale' => $stale, 'onError' => $onError];
    }

    /**
     * Returns the text of an entry with the loaded value.
     *
     * @param array{fresh: int, stale: int, onError: int} $life
     * @param array<string>                               $versions by tag
     * @param int                                         $d        the milliseconds that the load has taken
     */
    public function entry(int $now, array $life, array $versions, int $d): string
    {
        $e = $now + $life['fresh'];
        return Entry::format([
            'e' => $e,
            'b' => $this->birth(),
            's' => $life['stale'] > 0 ? $e + $life['stale'] : 0,
            'o' => $life['onError'] > 0 ? $e + $life['onError'] : 0,
            'd' => $d,
            'n' => (int) ($this->json === 'null'),
        ], $versions, $this->json);
    }

    /**
     * Returns the text of an entry that has expired, without a value.
     *
     * @param array<string> $versions by tag
     */
    public function tagsOnly(array $versions): string
    {
        return Entry::format(['e' => 1, 'b' => $this->birth()], $versions, 'null');
    }

    /** Returns the time of the lease, in microseconds by the clock of Redis. */
    private function birth(): string
    {
        return \substr((string) \strrchr($this->lease, ':'), 1);
    }
}
