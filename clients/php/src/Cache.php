<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Reads and stores values in Redis, by docs/protocol.md. Make one per request or process. It connects
 * at the first call. One call runs at a time.
 */
final class Cache
{
    /** For how many milliseconds no load of an expired value of a key begins after one has failed. */
    public const LOAD_PAUSE = 1000;

    private const UNNAMED = 'a value cannot be stored: its key or a tag has braces that Redis Cluster would read '
        . 'otherwise, is empty, or is not UTF-8';
    private const MOST_REMEMBERED = 256; // values, without APCu

    private readonly Options $options;
    private readonly Shared $shared;
    private readonly Shared $memory;
    private readonly Log $log;
    private readonly Backend $backend;
    private readonly Leases $leases;

    /** Whether expired values are replaced by `finish`. */
    private readonly bool $isLater;

    private bool $isRegistered = false; // for the end of the request

    /** Why Redis refuses reads, null after one. */
    private ?\Exception $refusal = null;

    /** @var array<array{Read, callable, ?string}> by key: loads for `finish` */
    private array $postponed = [];

    /** @var array<true> keys whose loaders run */
    private array $loading = [];

    /** @var array<string, int> */
    private array $counts = ['hits' => 0, 'misses' => 0, 'stale' => 0, 'memory' => 0, 'loads' => 0, 'loadErrors' => 0,
        'sets' => 0, 'refused' => 0, 'errors' => 0, 'unsettled' => 0, 'uncached' => 0];

    /** @var array<string, array<string, int>> */
    private array $reads = [];

    /** Sends nothing: an unavailable Redis shows at the first call. */
    public function __construct(Connections $connections, ?Options $options = null)
    {
        $this->options = $options ?? new Options();
        $this->shared = new Shared("unstale:$connections->name:{$this->options->source}:");
        $this->memory = new Shared("unstale:$connections->name:{$this->options->source}:", self::MOST_REMEMBERED);
        $this->log = new Log($this->options->logger, $this->shared);
        $this->backend = new Backend($connections, $this->options, $this->shared, $this->log);
        $this->leases = new Leases($this->backend, $this->options, $this->log);
        $this->isLater = $this->options->later ?? \function_exists('fastcgi_finish_request');
    }

    /**
     * Returns the value of a read from Redis, or loads and stores it. Null: it does not exist. The
     * value is what its JSON says, also if this call has loaded it: objects are arrays.
     *
     * @param callable(Load): mixed $loader gets the value from the primary, not in a transaction that
     *                                      began before the call; null for what does not exist. It can run
     *                                      after the response. It must not fetch the same key
     * @param string|null           $token  the text of a write token, for example of a cookie: until its
     *                                      rows are settled, the value is loaded. It needs
     *                                      `Options::$primary`. A text that is not a token is ignored
     *
     * @throws \Throwable     the loader's. No errors of Redis are thrown
     * @throws \LogicException if the connections cannot be used, or the loader fetches its own key
     */
    public function fetch(Read $read, callable $loader, ?string $token = null): mixed
    {
        return $this->fetchResult($read, $loader, $token)->value;
    }

    /** Is like `fetch`, and also returns the source of the value. */
    public function fetchResult(Read $read, callable $loader, ?string $token = null): Result
    {
        $mustLoad = $token !== null && $token !== '' && $this->mustLoad($token);
        $result = $this->options->memory > 0 && ($token ?? '') === '' ? $this->remembered($read) : null;
        if ($result !== null) {
            return $result;
        }
        if (!$this->isCached($read)) {
            return new Result($this->load([$read], self::single($loader), new Load())[$read->key] ?? null, 'loader');
        }
        $begun = $this->options->memory > 0 ? Shared::now() : 0.0;
        [$reply, $versions] = $this->backend->read($read->key, $read->tags);
        $entry = !$mustLoad && \is_string($reply) ? Entry::parse($reply) : null;
        $now = $this->backend->alive->now();
        if ($entry instanceof Entry && $entry->judge($read->tags, $versions, $now) === Entry::FRESH) {
            return $this->hit($read, $entry, $begun);
        }
        $found = $this->found($reply, $read->tags, $versions);
        if ($found->state === Entry::FRESH && !$mustLoad) {
            return $this->hit($read, $found->entry, $begun);
        }
        $key = $read->key;
        return $this->settle([$key => $read], [$key => $found], self::single($loader), $mustLoad)[$key];
    }

    /**
     * Is like `fetch` for several reads, with one round trip for all, and one call of the loader for
     * those that are missing. It is called again for those that others were loading.
     *
     * @param iterable<Read>                              $reads
     * @param callable(list<Read>, Load): array<mixed> $loader returns values by key, without what does not
     *                                                         exist. The settings of `Load` are for all
     *
     * @return array<mixed> by key in the order of `$reads`, without what does not exist, and without reads
     *                      that have no key if there are several
     */
    public function fetchMany(iterable $reads, callable $loader, ?string $token = null): array
    {
        $mustLoad = $this->mustLoad($token);
        $order = $values = $wanted = $names = $uncached = [];
        foreach ($reads as $read) {
            $order[$read->key] = null;
            $result = $token === null || $token === '' ? $this->remembered($read) : null;
            if ($result !== null) {
                $values[$read->key] = $result->value;
            } elseif ($this->isCached($read)) {
                $wanted[$read->key] = $read;
            } else {
                $uncached[$read->key] = $read->key === '' && \array_key_exists('', $uncached) ? null : $read;
            }
        }
        $uncached = \array_filter($uncached); // without several whose values nothing would tell apart
        if ($uncached !== []) {
            $loaded = $this->load(\array_values($uncached), $loader, new Load());
            $values += \array_intersect_key($loaded, $uncached);
        }
        foreach ($wanted as $read) {
            $names[$read->key] = true;
            foreach ($read->tags as $tag) {
                $names[Names::stamp($tag)] = true;
            }
        }
        $names = \array_map(\strval(...), \array_keys($names));
        $begun = Shared::now();
        $replies = $names === [] ? [] : \array_combine($names, $this->backend->values($names));
        $missing = $found = [];
        foreach ($wanted as $key => $read) {
            $reading = $this->found(...self::part($replies, $read));
            if ($reading->state === Entry::FRESH && !$mustLoad) {
                $values[$key] = $this->hit($read, $reading->entry, $begun)->value;
            } else {
                [$missing[$key], $found[$key]] = [$read, $reading];
            }
        }
        foreach ($this->settle($missing, $found, $loader, $mustLoad) as $key => $result) {
            $values[$key] = $result->value;
        }
        return \array_filter(\array_replace($order, $values), static fn (mixed $value): bool => $value !== null);
    }

    /**
     * Returns what Redis has and what has not expired, without a load and without waiting for one. Null:
     * nothing, or Redis is away.
     */
    public function get(Read $read): ?Result
    {
        $result = $this->remembered($read);
        if ($result !== null || !$this->isCached($read)) {
            return $result;
        }
        $begun = Shared::now();
        [$reply, $versions] = $this->backend->read($read->key, $read->tags);
        $found = $this->found($reply, $read->tags, $versions);
        if ($found->state !== Entry::FRESH) {
            $this->count($read, Entry::MISS);
            return null;
        }
        return $this->hit($read, $found->entry, $begun);
    }

    /**
     * Deletes keys and the versions of tags from Redis, and prevents running loads from storing what
     * they read. Nothing repeats this if it fails: put an invalidation into the transaction instead.
     *
     * @param list<string> $keys
     * @param list<string> $tags
     *
     * @return bool whether Redis has done it
     */
    public function delete(array $keys, array $tags = []): bool
    {
        $commands = [];
        foreach ([...$keys, ...\array_map(Names::stamp(...), $tags)] as $name) {
            $commands[] = ['UNLINK', ...\array_filter([Names::lease($name)]), $name];
            $this->memory->forget("value $name");
        }
        $replies = $this->backend->run($commands, repeats: true);
        $errors = \array_filter($replies, static fn (mixed $reply): bool => $reply instanceof \Exception);
        if ($errors !== []) {
            $this->log->warning('keys are not deleted', \reset($errors));
        }
        return $errors === [];
    }

    /**
     * Replaces expired values that were returned, and gives back leases whose answer was lost. It runs
     * at the end of the request, after the response where PHP can end that (PHP-FPM). In a process that
     * serves several requests, call it between them. It can wait for up to three seconds if Redis has
     * failed during a load. Errors of loaders are logged.
     */
    public function finish(): void
    {
        $postponed = $this->postponed;
        $this->postponed = [];
        foreach ($postponed as [$read, $found, $loader]) {
            try {
                $this->run([[$this->job($read, $found, false), $found]], $loader);
            } catch (\Throwable $e) {
                $this->log->warning('an expired value cannot be loaded', $e);
            }
        }
        $this->leases->search();
    }

    /**
     * Returns what was counted since the cache was made:
     * - calls: `hits`, also of negative and expired values, `stale`, only these, `memory`, and `misses`; in
     *   all and in `reads` by name; `unsettled`, which loaded because of a token; `uncached`, since no
     *   invalidation would reach the value;
     * - `loads` of keys, and `loadErrors`;
     * - values that Redis took (`sets`), that it refused since an invalidation came before them (`refused`),
     *   and that could not be stored for another reason (`errors`);
     * - `strays`: unused answers of servers that workers have left;
     * - `shortLeases`: leases that were shorter than `Options::$lease`, as the map says.
     *
     * @return array<string, mixed>
     */
    public function stats(): array
    {
        return $this->counts + [
            'strays' => $this->backend->strays,
            'shortLeases' => $this->leases->shortened,
            'reads' => $this->reads,
        ];
    }

    /** Returns why values are not cached as configured, or null. It sends nothing. */
    public function healthy(): ?\Throwable
    {
        [$lease, $ttl] = [$this->options->lease, $this->leases->ttl()];
        $short = $ttl < $lease ? new \RuntimeException("lease is $lease ms, and the map's is $ttl ms, which counts: "
            . 'lower it, or raise lease in the map') : null;
        return $this->backend->fault() ?? $this->refusal ?? $this->leases->refusal ?? $short;
    }

    /** Reports whether a read can be cached. */
    private function isCached(Read $read): bool
    {
        if ($read->error === null) {
            $this->leases->lost === [] || $this->leases->look();
            return true;
        }
        $this->counts['uncached']++;
        $this->log->warning('a value is loaded and not cached: no invalidation reaches it', $read->error);
        return false;
    }

    /** Reports whether what a caller has written may be old in Redis. */
    private function mustLoad(?string $text): bool
    {
        if ($text === null || $text === '') {
            return false;
        }
        $name = 'token ' . \sha1($text);
        $isSettled = $this->shared->get($name);
        if ($isSettled === null) {
            try {
                $isSettled = $this->isSettled(Token::parse($text), $name);
            } catch (\ValueError) {
                return false;
            } catch (\Exception $e) {
                $isSettled = false;
                $this->log->warning('a write token is not known to be settled: its reads load each time', $e);
            }
        }
        $this->counts['unsettled'] += (int) !$isSettled;
        return !$isSettled;
    }

    /** @throws \Exception if that is unknown */
    private function isSettled(Token $token, string $name): bool
    {
        $primary = $this->options->primary;
        if ($primary === null) {
            throw new \RuntimeException('there is no Options::$primary to ask');
        }
        $asked = Shared::now();
        $verdict = Settled::ask($primary instanceof \Closure ? $primary() : $primary, $token);
        $isSettled = $verdict->isSettled || $verdict->left === 0;
        if ($isSettled || $verdict->error !== null) {
            $seconds = $isSettled ? Token::LIFETIME : $verdict->left;
            $this->shared->set($name, $isSettled, $asked + 1000 * $seconds);
        }
        if (!$isSettled && $verdict->error !== null) {
            throw new \RuntimeException($verdict->error);
        }
        return $isSettled;
    }

    private function remembered(Read $read): ?Result
    {
        $known = $this->options->memory > 0 && $read->error === null ? $this->memory->get("value $read->key") : null;
        if ($known === null || \array_diff($read->tags, $known[1]) !== []) {
            return null;
        }
        $this->counts['memory']++;
        $this->count($read, Entry::FRESH);
        return new Result($known[0], 'memory');
    }

    private function hit(Read $read, Entry $entry, float $begun): Result
    {
        $this->refusal = null;
        $this->count($read, Entry::FRESH);
        if ($this->options->memory > 0) {
            $this->remember($read, $entry, $begun);
        }
        return new Result($entry->value, 'redis');
    }

    /** Keeps what was read from Redis, or loaded, at or after a time. */
    private function remember(Read $read, Entry $entry, float $begun): void
    {
        $ends = Shared::now() + $entry->e - $this->backend->alive->now();
        $tags = \array_map(\strval(...), \array_keys($entry->tags));
        $this->memory->set("value $read->key", [$entry->value, $tags], \min($begun + $this->options->memory, $ends));
    }

    private function count(Read $read, int $state): void
    {
        $kind = $state >= Entry::STALE ? 'hits' : 'misses';
        $this->reads[$read->name] ??= ['hits' => 0, 'misses' => 0, 'stale' => 0];
        $this->counts[$kind]++;
        $this->reads[$read->name][$kind]++;
        if ($state === Entry::STALE) {
            $this->counts['stale']++;
            $this->reads[$read->name]['stale']++;
        }
    }

    /**
     * Returns the state of what was read. It asks for the versions of tags that only the entry has.
     *
     * @param list<string>  $tags
     * @param array<string> $versions
     */
    private function found(mixed $reply, array $tags, array $versions): Found
    {
        $isAway = !\is_string($reply) && Fault::isOne($reply);
        if (!$isAway) {
            $this->refusal = null;
        }
        if (!\is_string($reply)) {
            if ($reply instanceof \Exception && !$isAway) {
                $this->log->warning('Redis refuses to read a key, which is loaded each time', $reply);
                $this->refusal = \str_starts_with($reply->getMessage(), 'NOPERM') ? $reply : null;
            }
            return new Found($reply === false || $isAway ? Entry::MISS : Entry::FOREIGN, null, null, $isAway);
        }
        $entry = Entry::parse($reply);
        if (!$entry instanceof Entry) {
            return new Found($entry === false ? Entry::FOREIGN : Entry::MISS, $reply);
        }
        $state = $entry->judge($tags, $versions, $this->backend->alive->now());
        if (\is_array($state)) {
            $more = $this->backend->versions($state);
            if ($more instanceof \Exception) {
                return new Found(Entry::MISS, null, null, true);
            }
            $state = $entry->judge($tags, $versions + $more, $this->backend->alive->now());
        }
        return new Found($state, $reply, $entry);
    }

    /** Reads a key again. */
    private function again(Read $read): Found
    {
        [$reply, $versions] = $this->backend->read($read->key, $read->tags);
        return $this->found($reply, $read->tags, $versions);
    }

    /**
     * Returns values that were not found fresh.
     *
     * @param array<Read>  $reads by key
     * @param array<Found> $found by key
     *
     * @return array<Result> by key
     */
    private function settle(array $reads, array $found, callable $loader, bool $mustLoad): array
    {
        $results = $jobs = [];
        foreach ($reads as $key => $read) {
            $at = $found[$key];
            if ($mustLoad && $at->state !== Entry::FOREIGN) {
                $at->state = Entry::MISS;
            }
            $this->count($read, $at->state);
            $isPaused = isset($this->loading[$key]) || $this->shared->get("pause $key") !== null;
            $isAnswered = $isPaused || $this->isLater && $at->state === Entry::STALE;
            if ($isAnswered && $at->state >= Entry::ON_ERROR) {
                $results[$key] = $at->stale();
                if (!$isPaused) {
                    $this->postponed[$key] = [$read, $at, $loader];
                    $this->register();
                }
                continue;
            }
            $this->refuseOwn($read); // or it would wait for the lease that its own loader has
            $jobs[] = [$this->job($read, $at, $mustLoad), $at];
        }
        return $results + $this->run($jobs, $loader);
    }

    private function job(Read $read, Found $found, bool $mustLoad): Job
    {
        $tags = \array_keys(\array_flip($read->tags) + ($found->entry?->tags ?? []));
        $tags = \array_map(\strval(...), $tags); // the loader may name those of the entry again
        $longest = \max($read->ttl + \max($read->stale, $read->staleOnError), $read->negative) * (1 + $read->jitter);
        $waits = !$mustLoad && $found->state !== Entry::STALE;
        $job = new Job($read, Names::areStampable($tags) ? $tags : $read->tags, $longest, $waits, !$mustLoad);
        $job->hash = $found->bytes === null ? '' : \sha1($found->bytes);
        return $job;
    }

    /**
     * Takes leases, loads what no one else loads, and waits for the rest.
     *
     * @param list<array{Job, Found}> $jobs
     *
     * @return array<Result> by key
     */
    private function run(array $jobs, callable $loader): array
    {
        $waiting = $ready = $found = [];
        foreach ($jobs as [$job, $at]) {
            $found[$job->read->key] = $at;
            $canStore = Names::lease($job->read->key) !== null && Names::areStampable($job->read->tags);
            $mayStore = $canStore && !$at->isAway && $at->state !== Entry::FOREIGN;
            $mayStore ? $waiting[] = $job : $ready[] = $job;
            $canStore || $this->log->warning(self::UNNAMED, "the key {$job->read->key}");
        }
        try {
            return $this->loop($waiting, $ready, $found, $loader);
        } finally {
            $this->leases->release(\array_column($jobs, 0), false); // after something that nobody expects
            if ($this->leases->lost !== []) {
                $this->register();
            }
        }
    }

    /**
     * Does what `run` does.
     *
     * @param list<Job>    $waiting for a lease, or the load of others
     * @param list<Job>    $ready   to load
     * @param array<Found> $found   by key
     *
     * @return array<Result> by key
     */
    private function loop(array $waiting, array $ready, array $found, callable $loader): array
    {
        $results = [];
        while ($waiting !== [] || $ready !== []) {
            $asked = $waiting;
            $waiting = $asked === [] ? [] : $this->leases->ask($asked, $this->isUsable(...));
            foreach ($asked as $job) {
                $key = $job->read->key;
                if ($job->entry !== null) {
                    $results[$key] = new Result($job->entry->value, 'redis');
                } elseif (!\in_array($job, $waiting, true)) {
                    $isStale = $job->lease === null && $found[$key]->state === Entry::STALE;
                    $isStale ? $results[$key] = $found[$key]->stale() : $ready[] = $job;
                }
            }
            if ($ready !== []) {
                $results = $this->loadAll($ready, $found, $loader) + $results;
                $ready = [];
            } elseif ($waiting !== []) {
                \usleep((int) (1000 * \min(\array_map(static fn (Job $job): float => $job->wait, $waiting))));
            }
        }
        return $results;
    }

    /** Takes a value that another reader has stored, or notes that it is of no use. */
    private function isUsable(Job $job, string $bytes): bool
    {
        $found = $this->found($bytes, $job->read->tags, $job->versions);
        if ($found->state === Entry::FRESH && $job->mayTake) {
            $job->entry = $found->entry;
            return true;
        }
        $job->hash = \sha1($bytes);
        return $found->isAway || $found->state === Entry::FOREIGN;
    }

    /**
     * Loads values together, and stores those that have a lease.
     *
     * @param list<Job>    $jobs
     * @param array<Found> $found by key
     *
     * @return array<Result> by key
     */
    private function loadAll(array $jobs, array $found, callable $loader): array
    {
        $load = new Load();
        $begun = Shared::now();
        try {
            $values = $this->load(\array_map(static fn (Job $job): Read => $job->read, $jobs), $loader, $load);
        } catch (\Throwable $e) {
            $this->leases->release($jobs, false);
            return $this->instead($jobs, $found, $e);
        }
        $d = (int) \round(Shared::now() - $begun);
        $results = $texts = [];
        foreach ($jobs as $i => $job) {
            $value = $values[$job->read->key] ?? null;
            try {
                $texts[$i] = Entry::encode($value);
                $value = Entry::decode($texts[$i]); // as callers that find it in Redis get it
            } catch (\Throwable $e) { // also of a JsonSerializable
                unset($texts[$i]);
                $this->counts['errors']++;
                $this->log->warning('a value cannot be stored', $e);
            }
            $results[$job->read->key] = new Result($value, 'loader');
        }
        $leased = \array_filter($jobs, static fn (Job $job): bool => $job->lease !== null);
        $this->store(\array_intersect_key($leased, $texts), $texts, $load, $d, $begun);
        $this->leases->release($jobs, true); // those that are not stored, before the caller gets the value
        return $results;
    }

    /**
     * Returns expired values in place of those that cannot be loaded.
     *
     * @param list<Job>    $jobs
     * @param array<Found> $found by key
     *
     * @return array<Result> by key
     *
     * @throws \Throwable the error, if there is no such value
     */
    private function instead(array $jobs, array $found, \Throwable $error): array
    {
        $results = [];
        foreach ($jobs as $job) {
            $until = Shared::now() + self::LOAD_PAUSE * \random_int(750, 1250) / 1000;
            $this->shared->set("pause {$job->read->key}", true, $until);
        }
        foreach ($jobs as $job) {
            $key = $job->read->key;
            $at = $found[$key];
            if ($at->state === Entry::ON_ERROR) {
                $again = $this->again($job->read);
                $at = $again->state >= Entry::ON_ERROR && $again->bytes === $at->bytes ? $at : new Found(Entry::MISS);
            }
            if ($at->state < Entry::ON_ERROR) {
                throw $error;
            }
            $results[$key] = $at->stale();
        }
        $this->log->warning('a load has failed: expired values are returned', $error);
        return $results;
    }

    /**
     * Stores values under their leases.
     *
     * @param array<int, Job>    $jobs
     * @param array<int, string> $texts the JSON of the values
     */
    private function store(array $jobs, array $texts, Load $load, int $d, float $begun): void
    {
        [$named, $ttl, $isSkipped] = $load->settings();
        if ($isSkipped) {
            return;
        }
        if (!Names::areStampable($named)) {
            $this->log->warning(self::UNNAMED, 'the tags ' . \implode(', ', $named));
            return;
        }
        $late = [];
        foreach ($jobs as $job) {
            $late += \array_diff_key(\array_flip($named), $job->versions);
        }
        $longest = \max([0, ...\array_map(static fn (Job $job): float => $job->longest, $jobs), 1.25 * (int) $ttl]);
        $late = $late === [] ? [] : $this->leases->versions(\array_map(\strval(...), \array_keys($late)), $longest);
        $fills = $own = $entries = [];
        foreach ($jobs as $i => $job) {
            $versions = \array_intersect_key($job->versions + $late, \array_flip([...$job->read->tags, ...$named]));
            $life = self::life($job->read, $texts[$i] === 'null', $ttl);
            if ($life[0] < 1 || \in_array('', $versions, true)) {
                continue;
            }
            // Versions that are from after the load: the tags are stored alone, in an entry that has
            // expired. The next load, of any process, asks for their versions before it begins.
            $own[$i] = \array_diff_key($versions, $job->versions) === [];
            $entry = $this->entry($job, $life, $own[$i] ? $texts[$i] : null, $versions, $d);
            $fills[$i] = [$job, $entry, $life[0] + \max($life[1], $life[2])];
        }
        foreach ($this->leases->fill(\array_values($fills)) as $at => $accepted) {
            $i = \array_keys($fills)[$at];
            if ($own[$i] || !$accepted) {
                $this->counts[$accepted === null ? 'errors' : ($accepted ? 'sets' : 'refused')]++;
            }
            if ($accepted && $own[$i] && $this->options->memory > 0) {
                $this->remember($jobs[$i]->read, Entry::parse($fills[$i][1]), $begun);
            }
        }
    }

    /**
     * Returns for how many milliseconds a value is fresh, stale, and kept for errors.
     *
     * @return array{int, int, int}
     */
    private static function life(Read $read, bool $isNegative, ?int $ttl): array
    {
        $spread = $read->jitter * \random_int(-1_000_000, 1_000_000) / 1e6;
        [$fresh, $stale, $onError] = match (true) {
            $isNegative => [$read->negative, 0, 0],
            $ttl !== null => [$ttl, 0, 0],
            default => [$read->ttl, $read->stale, $read->staleOnError],
        };
        if ($ttl !== null && !$isNegative) {
            $spread = -\abs($spread);
        }
        return [$fresh < 1 ? 0 : \max((int) ($fresh * (1 + $spread)), 1), $stale, $onError];
    }

    /**
     * Returns the text of an entry; without a value, of one that has expired.
     *
     * @param array{int, int, int} $life
     * @param array<string>        $versions by tag
     */
    private function entry(Job $job, array $life, ?string $json, array $versions, int $d): string
    {
        $e = $json === null ? 1 : (int) $this->backend->alive->now() + $life[0];
        $b = \substr((string) \strrchr((string) $job->lease, ':'), 1);
        if ($json === null) {
            return Entry::format(['e' => $e, 'b' => $b], $versions, 'null');
        }
        return Entry::format([
            'e' => $e,
            'b' => $b,
            's' => $life[1] > 0 ? $e + $life[1] : 0,
            'o' => $life[2] > 0 ? $e + $life[2] : 0,
            'd' => $d,
            'n' => $json === 'null' ? 1 : 0,
        ], $versions, $json);
    }

    /**
     * Calls a loader.
     *
     * @param list<Read> $reads
     *
     * @return array<mixed> by key
     */
    private function load(array $reads, callable $loader, Load $load): array
    {
        $loading = $this->loading;
        foreach ($reads as $read) {
            $this->refuseOwn($read);
        }
        $this->loading += \array_fill_keys(\array_column($reads, 'key'), true);
        unset($this->loading['']); // of reads that have no key
        $this->counts['loads'] += \count($reads);
        try {
            return $loader($reads, $load);
        } catch (\Throwable $e) {
            $this->counts['loadErrors'] += \count($reads);
            throw $e;
        } finally {
            $this->loading = $loading;
        }
    }

    /** @throws \LogicException if a loader of the key runs */
    private function refuseOwn(Read $read): void
    {
        if (isset($this->loading[$read->key])) {
            throw new \LogicException("the loader of the key $read->key fetches it, which would never end");
        }
    }

    /** Makes a loader of one value one of several. */
    private static function single(callable $loader): \Closure
    {
        return static fn (array $reads, Load $load): array => [$reads[0]->key => $loader($load)];
    }

    /**
     * Returns what `found` needs of what was read together with others.
     *
     * @param array<mixed> $replies by name
     *
     * @return array{mixed, list<string>, array<string>}
     */
    private static function part(array $replies, Read $read): array
    {
        $versions = [];
        foreach ($read->tags as $tag) {
            $version = $replies[Names::stamp($tag)];
            if (Fault::isOne($version)) {
                return [$version, [], []];
            }
            $versions[$tag] = \is_string($version) ? $version : '';
        }
        return [$replies[$read->key], $read->tags, $versions];
    }

    /** Runs `finish` at the end of the request, after all functions that are registered until then. */
    private function register(): void
    {
        if ($this->isRegistered) {
            return;
        }
        $this->isRegistered = true;
        $end = function (): void {
            if ($this->postponed === [] && $this->leases->lost === []) {
                return;
            }
            if (\function_exists('fastcgi_finish_request')) {
                \session_status() === \PHP_SESSION_ACTIVE && \session_write_close(); // whose lock others wait for
                \fastcgi_finish_request();
            }
            $this->finish();
        };
        \register_shutdown_function(static fn () => \register_shutdown_function($end));
    }
}
