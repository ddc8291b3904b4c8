<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Takes leases, stores values under them, and gives them back, by docs/protocol.md.
 *
 * @internal
 */
final class Leases
{
    /** How many others a reader waits for. If one more has the lease, it loads and stores nothing. */
    public const MOST_HOLDERS = 4;

    // Milliseconds between two requests for a taken lease, and how much longer a tag version lives than
    // the longest entry that has it.
    public const FIRST_PAUSE = 2;
    public const LONGEST_PAUSE = 100;
    public const VERSION_MARGIN = 3_600_000;

    private const MOST_LOST = 1000;
    private const LONGEST_SEARCH = 3000; // ms, at the end of a request

    /** Leases that were shorter than configured. */
    public int $shortened = 0;

    /** Why Redis stores nothing, null after it has stored a value. */
    public ?\Exception $refusal = null;

    /**
     * Leases that Redis may have and no load uses.
     *
     * @var list<array{string, string, bool}> name, token, and whether Redis has answered once
     */
    public array $lost = [];

    /** @var array<array{self, Job, int}> by token: leases that loads of a process use, and the process */
    private static array $held = [];

    private static bool $isRegistered = false; // for the end of the process or request

    private float $look = 0; // when to look for them again

    public function __construct(
        private readonly Backend $backend,
        private readonly Options $options,
        private readonly Log $log,
    ) {
    }

    /** How long a lease lasts, in milliseconds. */
    public function ttl(): int
    {
        return (int) \min($this->options->lease, $this->backend->alive->lease);
    }

    /**
     * Asks once for the leases of keys, and for the versions of tags. It sets `wait` of jobs for which to
     * ask again: others load, or have stored what is of no use.
     *
     * @param list<Job>                   $jobs
     * @param callable(Job, string): bool $usable gets a value that another reader has stored meanwhile. It
     *                                            returns false, and sets the job's hash, to ask again
     */
    public function ask(array $jobs, callable $usable): void
    {
        $ttl = $this->ttl();
        $commands = $stamps = $longest = [];
        foreach ($jobs as $job) {
            if ($job->token === '') {
                $job->token = self::token();
                $job->until = Shared::now() + $ttl;
            }
            $commands[] = self::command('lease', $job, [$job->token, $ttl, $job->hash]);
            foreach ($job->tags as $tag) {
                $longest[$tag] = \max($longest[$tag] ?? 0, $job->longest);
            }
        }
        foreach ($longest as $tag => $life) {
            $stamps[$tag] = self::stamp((string) $tag, $life);
        }
        $replies = $this->backend->run([...$commands, ...\array_values($stamps)], leases: true);
        $versions = \array_combine(\array_keys($stamps), \array_splice($replies, \count($jobs)));
        foreach ($jobs as $i => $job) {
            $job->wait = null;
            [$kind, $rest] = $this->take($job, $replies[$i], $versions);
            if ($job->lease !== null && $this->ttl() < $ttl) {
                // As the same pipeline says, second sweeps do not wait for this lease.
                $this->release([$job], false);
                [$job->lease, $job->token, $job->wait] = [null, self::token(), 0];
                continue;
            }
            $wait = match ($kind) {
                'value' => $usable($job, $rest) ? null : 0,
                'taken' => $this->wait($job, $rest),
                default => null,
            };
            if ($job->holders <= self::MOST_HOLDERS && Shared::now() <= $job->until) {
                $job->wait = $wait;
            }
        }
        $this->shortened += $ttl < $this->options->lease ? \count($jobs) : 0;
    }

    /**
     * Asks for the versions of tags that only the loader has named.
     *
     * @param list<string> $tags
     *
     * @return array<string> by tag, '' for none
     */
    public function versions(array $tags, float $longest): array
    {
        $stamps = \array_map(static fn (string $tag): array => self::stamp($tag, $longest), $tags);
        return \array_combine($tags, $this->texts($this->backend->run($stamps)));
    }

    /**
     * Stores entries under their leases.
     *
     * @param list<array{Job, string, int, bool}> $fills job, entry, and its life in milliseconds
     *
     * @return list<bool|null> whether Redis has accepted each; null: unknown, or refused with an error
     */
    public function fill(array $fills): array
    {
        $commands = [];
        foreach ($fills as [$job, $entry, $px]) {
            $commands[] = self::command('fill', $job, [$job->lease, $entry, $px]);
        }
        $accepted = [];
        foreach ($this->backend->run($commands) as $i => $reply) {
            if ($reply instanceof \Exception) {
                $this->refuse($reply);
            } elseif ($reply === 1) {
                $this->refusal = null;
                unset(self::$held[$fills[$i][0]->token]);
            }
            $accepted[] = $reply instanceof \Exception ? null : $reply === 1;
        }
        return $accepted;
    }

    /**
     * Gives back leases that are held. With `$removes`, the entries that were read before go too.
     *
     * @param list<Job> $jobs
     */
    public function release(array $jobs, bool $removes): void
    {
        $jobs = \array_values(\array_filter($jobs, static fn (Job $job): bool => isset(self::$held[$job->token])));
        $commands = [];
        foreach ($jobs as $job) {
            unset(self::$held[$job->token]);
            $name = (string) Names::lease($job->read->key);
            $commands[] = $removes && $job->hash !== ''
                ? Scripts::command('release', [$name, $job->read->key], [$job->lease, $job->hash])
                : Scripts::command('release', [$name], [$job->lease]);
        }
        foreach ($this->backend->run($commands) as $i => $reply) {
            if (Fault::isAway($reply)) {
                $this->lose($jobs[$i]);
            }
        }
    }

    /**
     * Looks for lost leases until Redis has answered at least twice, the last time without them: a copy
     * of the request may arrive late. It waits between two looks, for up to three seconds.
     */
    public function search(): void
    {
        for ($end = Shared::now() + self::LONGEST_SEARCH; $this->lost !== [] && Shared::now() < $end;) {
            \usleep((int) \max(0, 1000 * (\min($this->look, $end) - Shared::now())));
            $this->look();
        }
    }

    /** Looks once, if that is due. */
    public function look(): void
    {
        if ($this->lost === [] || Shared::now() < $this->look) {
            return;
        }
        $lost = $this->lost;
        $this->lost = $found = [];
        $replies = $this->backend->run(\array_map(static fn (array $one): array => ['GET', $one[0]], $lost));
        foreach ($lost as $i => [$name, $token, $isLooked]) {
            $isUnknown = $replies[$i] instanceof \Exception;
            $isThere = \is_string($replies[$i]) && \str_starts_with($replies[$i], "$token:");
            if ($isThere) {
                $found[] = Scripts::command('release', [$name], [$replies[$i]]);
            }
            if ($isThere || $isUnknown || !$isLooked) {
                $this->lost[] = [$name, $token, $isLooked || !$isUnknown];
            }
        }
        $this->backend->run($found); // what stays is found again
        $this->look = Shared::now() + $this->options->timeout;
    }

    /**
     * Takes the answer to a request for a lease, and returns it if it is one.
     *
     * @param array<mixed> $versions replies, by tag
     *
     * @return array{string|null, mixed}
     */
    private function take(Job $job, mixed $answer, array $versions): array
    {
        $own = \array_intersect_key($versions, \array_flip($job->tags));
        foreach ([$answer, ...\array_values($own)] as $reply) {
            if ($reply instanceof Fault || Fault::mayRun($reply)) {
                if (!$answer instanceof \Exception || Fault::mayRun($answer)) {
                    $this->lose($job);
                }
                return [null, null];
            }
        }
        if (!\is_array($answer)) {
            $answer instanceof \Exception && $this->refuse($answer);
            return [null, null];
        }
        $job->versions = $this->texts($own);
        if ($answer[0] === 'lease') {
            $job->lease = $answer[1];
            self::$held[$job->token] = [$this, $job, \getmypid()];
            self::$isRegistered || \register_shutdown_function(self::end(...));
            self::$isRegistered = true;
        }
        return $answer;
    }

    /** Gives back the leases of loaders that have ended the process. The process of a fork has others. */
    private static function end(): void
    {
        foreach (self::$held as [$leases, $job, $process]) {
            $process === \getmypid() && $leases->release([$job], false);
        }
    }

    /** Returns for how many milliseconds to wait for the load of others, null for a job that does not wait. */
    private function wait(Job $job, int $left): ?float
    {
        if ($left > $job->left) {
            $job->holders++; // nothing extends a lease: this is another one
        }
        $job->left = $left;
        if ($job->mustLoad || $job->state === Entry::STALE) {
            return null;
        }
        $wait = \min($job->pause * \random_int(500, 1500) / 1000, \max($left, 1));
        $job->pause = \min(2 * $job->pause, self::LONGEST_PAUSE);
        return $wait;
    }

    private function refuse(\Exception $error): void
    {
        $text = $error->getMessage();
        if (\preg_match('/^(NOPERM|OOM|MISCONF)|unknown command|ACL failure|The user executing/', $text) === 1) {
            $this->refusal = new \RuntimeException("nothing is stored: $text", 0, $error);
        } elseif (!$error instanceof Fault) {
            $this->log->warning('Redis refuses to store a value', $error);
        }
    }

    /**
     * Returns versions, '' for none.
     *
     * @param array<mixed> $replies
     *
     * @return array<string>
     */
    private function texts(array $replies): array
    {
        return \array_map(function (mixed $reply): string {
            $reply instanceof \Exception && $this->refuse($reply);
            return \is_string($reply) ? $reply : '';
        }, $replies);
    }

    private function lose(Job $job): void
    {
        if (\count($this->lost) < self::MOST_LOST) {
            $this->lost[] = [(string) Names::lease($job->read->key), $job->token, false];
        }
    }

    /**
     * @param list<string|int> $arguments
     *
     * @return list<string|int>
     */
    private static function command(string $script, Job $job, array $arguments): array
    {
        $key = $job->read->key;
        return Scripts::command($script, [(string) Names::lease($key), (string) Names::hold($key), $key], $arguments);
    }

    /** @return list<string|int> */
    private static function stamp(string $tag, float $longest): array
    {
        $name = Names::stamp($tag);
        return Scripts::command(
            'stamp',
            [$name, (string) Names::hold($name)],
            [self::token(), (int) \ceil($longest) + self::VERSION_MARGIN],
        );
    }

    private static function token(): string
    {
        return \bin2hex(\random_bytes(16));
    }
}
