<?php

declare(strict_types=1);

namespace Unstale;

/** What a loader gets: it decides how its value is stored. */
final class Load
{
    /** @var list<string> */
    private array $tags = [];

    private ?int $ttl = null;
    private bool $isSkipped = false;

    /**
     * Adds tags. An invalidation of a tag that neither the read nor the previous value has is not
     * noticed during the load. So the first value with such a tag is not stored: its tags are, and
     * the second value is stored.
     */
    public function tag(string ...$tags): void
    {
        $this->tags = [...$this->tags, ...\array_values($tags)];
        if (\in_array('', $tags, true)) {
            $this->skip(); // what depends on an unknown cannot be kept
        }
    }

    /**
     * Replaces the TTL by one in milliseconds that the value never exceeds. With less than 1 it is not
     * stored. Null keeps the time of the read for it.
     */
    public function ttl(int $ms): void
    {
        $this->ttl = $ms;
        if ($ms < 1) {
            $this->skip();
        }
    }

    /** Stores the value nowhere. */
    public function skip(): void
    {
        $this->isSkipped = true;
    }

    /**
     * @internal
     *
     * @return array{list<string>, int|null, bool} tags, TTL, and whether nothing is to be stored
     */
    public function settings(): array
    {
        return [$this->tags, $this->ttl, $this->isSkipped];
    }
}
