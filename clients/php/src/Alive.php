<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The time of Redis, and where workers write. The first pipeline of each connection asks, and later
 * ones when that is due.
 *
 * @internal
 */
final class Alive
{
    /** For how many milliseconds a worker must have been silent to count as one that does not write to the server. */
    public const LONGEST_SILENCE = 3000;

    /** By how many milliseconds a clock may step before Redis is asked again for the time. */
    public const CLOCK_STEP = 1000;

    /** For how many milliseconds the time of Redis counts. */
    public const CLOCK_LIFE = 30_000;

    // What an answer says: a worker writes to the server, no worker runs or the server was replaced, it
    // takes no writes, or nothing.
    public const YOUNG = 'young';
    public const OLD = 'old';
    public const REPLICA = 'replica';
    public const UNKNOWN = 'unknown';

    // Milliseconds between two questions on one connection: while workers write there, before any was
    // seen, after a refusal, which Redis logs, and to a server that may have become a replica.
    private const USUAL = 250;
    private const UNSEEN = 1000;
    private const REFUSED = 60_000;
    private const PROBE = 30_000;

    /** The longest lease that the maps of the workers allow, in milliseconds. */
    public float $lease = \INF;

    /** When a worker has last written, by the latest answer; 0: never; null: unknown. */
    public ?int $latest = null;

    private float $drift; // of the machine's clock
    private float $offset; // from Shared::now() to the time of Redis; until an answer, to this machine's
    private float $next = 0; // when to ask again
    private float $nextProbe = 0;
    private float $asked = 0;
    private bool $isSeen = false; // a worker has written, here or elsewhere

    public function __construct(
        private readonly ?string $source,
        private readonly bool $isCluster,
        private readonly Shared $shared,
    ) {
        $this->offset = $this->drift = \microtime(true) * 1000 - Shared::now();
    }

    /** Returns the time of Redis in milliseconds. */
    public function now(): float
    {
        return Shared::now() + $this->offset;
    }

    /** Makes the next pipeline ask: it goes through a new connection. */
    public function renew(): void
    {
        $this->next = $this->nextProbe = 0;
    }

    /** Reports whether the next pipeline must ask. */
    public function isDue(float $now): bool
    {
        // or the machine's clock was set
        return $now >= $this->next || \abs(\microtime(true) * 1000 - $now - $this->drift) >= self::CLOCK_STEP;
    }

    /**
     * Returns commands to send along, if a question is due or `$always`. `answer` gets the replies.
     *
     * @param string|null $key one that the pipeline reads, if any
     *
     * @return list<list<string>>
     */
    public function question(?string $key, bool $always): array
    {
        $now = Shared::now();
        if (!$always && !$this->isDue($now)) {
            return [];
        }
        $this->asked = $now;
        $commands = [['TIME']];
        if (!$this->isCluster && $this->shared->get('alive refused') === null) {
            $commands[] = $this->source === null
                ? ['HGETALL', 'unstale:alive']
                : ['HGET', 'unstale:alive', $this->source];
            $probe = $key === null || $now < $this->nextProbe ? null : Names::lease("$key:unstale:probe");
            if ($probe !== null) {
                $commands[] = ['UNLINK', $probe]; // which a replica refuses
            }
        }
        return $commands;
    }

    /**
     * Takes the replies to a question.
     *
     * @param list<mixed> $replies
     */
    public function answer(array $replies): string
    {
        [$time, $fields, $probe] = $replies + [null, null, null];
        if (\is_array($time)) {
            $now = Shared::now();
            $this->offset = $time[0] * 1000 + $time[1] / 1000 - ($this->asked + $now) / 2;
            $this->drift = \microtime(true) * 1000 - $now;
        }
        $presence = $this->evaluate($fields, $probe);
        $this->next = $this->asked + match (true) {
            $this->isCluster => self::CLOCK_LIFE,
            $presence === self::OLD => 0,
            $this->isSeen => self::USUAL,
            default => self::UNSEEN,
        };
        if ($probe !== null) {
            $this->nextProbe = $this->asked + self::PROBE;
        }
        if ($presence === self::OLD) {
            $this->nextProbe = \min($this->nextProbe, $this->asked + self::UNSEEN);
        }
        return $presence;
    }

    private function evaluate(mixed $fields, mixed $probe): string
    {
        if ($probe instanceof \RedisException && \str_starts_with($probe->getMessage(), 'READONLY')) {
            return self::REPLICA;
        }
        $this->latest = null;
        if ($fields === null || $fields instanceof \Exception) {
            if ($fields instanceof \RedisException && \str_starts_with($fields->getMessage(), 'NOPERM')) {
                $this->shared->set('alive refused', true, Shared::now() + self::REFUSED);
            }
            return self::UNKNOWN;
        }
        $texts = \is_array($fields) ? \array_filter($fields, static fn (int $i): bool => $i % 2 === 1, 2) : [$fields];
        $this->latest = 0;
        $leases = [];
        foreach ($texts as $text) {
            $written = \json_decode((string) $text, true);
            $t = \is_array($written) && \is_numeric($written['t'] ?? null) ? (int) $written['t'] : 0;
            if ($t > 0) {
                $this->latest = \max($this->latest, $t);
                $lease = $written['lease'] ?? null;
                $leases[] = \is_numeric($lease) && $lease > 0 ? (float) $lease : \INF;
            }
        }
        if ($leases !== []) {
            $this->lease = \min($leases);
        }
        if ($leases !== [] && $this->now() - $this->latest / 1000 <= self::LONGEST_SILENCE) {
            $this->isSeen = true;
            return self::YOUNG;
        }
        return $this->isSeen || $leases !== [] ? self::OLD : self::UNKNOWN; // of older workers, or none yet
    }
}
