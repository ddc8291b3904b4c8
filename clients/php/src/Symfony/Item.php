<?php

declare(strict_types=1);

namespace Unstale\Symfony;

use Symfony\Contracts\Cache\ItemInterface;
use Unstale\Load;
use Unstale\Read;

/** The item that a callback of `Pool::get` receives. It says how the callback's result is stored. */
final class Item implements ItemInterface
{
    private mixed $value = null;
    private ?float $expiry = null;

    /** @internal */
    public function __construct(
        private readonly string $key,
        private readonly string $namespace,
        private readonly Load $load,
    ) {
    }

    public function getKey(): string
    {
        return $this->key;
    }

    /** Returns what `set` was given. */
    public function get(): mixed
    {
        return $this->value;
    }

    /** Returns false: a callback runs only if there is no value. */
    public function isHit(): bool
    {
        return false;
    }

    /** Has no effect: the callback's result is stored. */
    public function set(mixed $value): static
    {
        $this->value = $value;
        return $this;
    }

    /** Sets when the value expires. Null: after the time of the read, or of the pool. */
    public function expiresAt($expiration): static
    {
        $this->expiry = $expiration === null ? null : (float) $expiration->format('U.u');
        return $this;
    }

    /** Sets after how many seconds, or which interval, the value expires. With 0 it is not stored. */
    public function expiresAfter($time): static
    {
        if ($time instanceof \DateInterval) {
            $time = (float) (new \DateTimeImmutable('@0'))->add($time)->format('U.u');
        }
        $this->expiry = $time === null ? null : $time + \microtime(true);
        return $this;
    }

    /**
     * Makes the value depend on tags, behind the pool's namespace.
     *
     * @param string|\Stringable|iterable<string|\Stringable> $tags
     *
     * @throws InvalidArgument for an empty tag, or one that is not text
     */
    public function tag($tags): static
    {
        foreach (\is_iterable($tags) ? $tags : [$tags] as $tag) {
            $this->load->tag($this->namespace . InvalidArgument::unlessText($tag, 'tag'));
        }
        return $this;
    }

    /** @return array{} */
    public function getMetadata(): array
    {
        return [];
    }

    /** @internal */
    public function end(): void
    {
        if ($this->expiry !== null) {
            $this->load->ttl((int) \min(\ceil(($this->expiry - \microtime(true)) * 1000), Read::LONGEST));
        }
    }
}
