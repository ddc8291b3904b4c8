<?php

declare(strict_types=1);

namespace Unstale;

/** An entry of the section `reads`, for generated code. */
final readonly class ReadEntry
{
    /** @internal */
    public function __construct(private ReadMap $map, private Read $policy)
    {
    }

    /** Returns the read of a key. @param list<string> $tags */
    public function read(string $key, array $tags = []): Read
    {
        return $this->make($key, $tags, $this->map->error());
    }

    /** Returns a read for a value that no row can have or that the map does not declare. */
    public function refuse(string $hole, mixed $value): Read
    {
        $name = $this->policy->name;
        $shown = Text::shown($value);
        return $this->make('', [], "the read $name: $hole is $shown, and the map makes no such key stale");
    }

    /** @param list<string> $tags */
    private function make(string $key, array $tags, ?string $error): Read
    {
        $p = $this->policy;
        return new Read($key, $p->ttl, $p->name, $p->jitter, $p->stale, $p->staleOnError, $p->negative, $tags, $error);
    }
}
