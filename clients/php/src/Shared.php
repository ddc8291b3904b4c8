<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What the processes of a machine know together for a short time, in APCu. Without APCu, each
 * process knows it for itself. Anything may be missing at any time.
 *
 * @internal
 */
final class Shared
{
    private const SWEEP = 1000; // ms

    private readonly bool $inAPCu;

    /** @var array<array{mixed, float}> */
    private array $own = [];

    private float $sweep = 0; // when to drop what has expired

    /** @param int $most without APCu */
    public function __construct(private readonly string $prefix, private readonly int $most = 4096)
    {
        $this->inAPCu = \function_exists('apcu_enabled') && \apcu_enabled();
    }

    /** Returns milliseconds of a clock that all processes of the machine have, and that is never set. */
    public static function now(): float
    {
        return \hrtime(true) / 1e6;
    }

    /** Returns what is known, or null. */
    public function get(string $name): mixed
    {
        $known = $this->inAPCu ? \apcu_fetch($this->prefix . $name) : $this->own[$name] ?? false;
        return \is_array($known) && self::now() < $known[1] ? $known[0] : null;
    }

    /** Keeps something that is not null until a time. */
    public function set(string $name, mixed $value, float $until): void
    {
        if ($this->inAPCu) {
            // Its TTL is in seconds, by a clock that can be set: it only frees memory.
            \apcu_store($this->prefix . $name, [$value, $until], (int) \ceil(($until - self::now()) / 1000) + 1);
            return;
        }
        $now = self::now();
        if ($now >= $this->sweep) {
            $this->sweep = $now + self::SWEEP;
            $this->own = \array_filter($this->own, static fn (array $known): bool => $now < $known[1]);
        }
        unset($this->own[$name]);
        if (\count($this->own) >= $this->most) {
            unset($this->own[\array_key_first($this->own)]); // the oldest
        }
        $this->own[$name] = [$value, $until];
    }

    public function forget(string $name): void
    {
        if ($this->inAPCu) {
            \apcu_delete($this->prefix . $name);
        }
        unset($this->own[$name]);
    }
}
