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

    /** @var array<array{Job, callable}> by key: loads for `finish` */
    private array $postponed = [];

    /** @var array<true> keys whose loaders run */
    private array $loading = [];

    /** @var array<string, int> */
    private array $counts = ['memory' => 0, 'loads' => 0, 'loadErrors' => 0, 'sets' => 0, 'refused' => 0,
        'errors' => 0, 'unsettled' => 0, 'uncached' => 0];

    /** @var array<string, array{hits: int, misses: int, stale: int}> by the name of the read */
    private array $reads = [];

    /** Sends nothing: an unavailable Redis shows at the first call. */
    public function __construct(Connections $connections, ?Options $options = null)
    {
        $this->options = $options ?? new Options();
        $prefix = "unstale:$connections->name:{$this->options->source}:";
        $this->shared = new Shared($prefix);
        $this->memory = new Shared($prefix, self::MOST_REMEMBERED);
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
        $mustLoad = $this->mustLoad($token);
        $result = $this->remembered($read, $token);
        if ($result !== null) {
            return $result;
        }
        $key = $read->key;
        if (!$this->isCached($read)) {
            return new Result($this->load([$read], self::single($loader), new Load())[$key] ?? null, 'loader');
        }
        $begun = Shared::now();
        $found = $this->look($read);
        if ($found->state === Entry::FRESH && !$mustLoad) {
            return $this->hit($read, $found->entry, $begun);
        }
        return $this->resolve([$key => new Job($read, $found, $mustLoad)], self::single($loader))[$key];
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
        $order = $values = $wanted = $uncached = $jobs = [];
        foreach ($reads as $read) {
            $order[$read->key] = null;
            $result = $this->remembered($read, $token);
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
        $begun = Shared::now();
        foreach ($this->backend->read(\array_values($wanted)) as $key => [$reply, $versions]) {
            $read = $wanted[$key];
            $found = $this->found($reply, $read->tags, $versions);
            if ($found->state === Entry::FRESH && !$mustLoad) {
                $values[$key] = $this->hit($read, $found->entry, $begun)->value;
            } else {
                $jobs[$key] = new Job($read, $found, $mustLoad);
            }
        }
        foreach ($this->resolve($jobs, $loader) as $key => $result) {
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
        $found = $this->look($read);
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
        $names = [...$keys, ...\array_map(Names::stamp(...), $tags)];
        foreach ($names as $name) {
            $commands[] = ['UNLINK', ...\array_filter([Names::lease($name)]), $name];
            $this->memory->forget("value $name");
        }
        $replies = $this->backend->run($commands, $names[0] ?? null);
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
        foreach ($postponed as [$job, $loader]) {
            try {
                $this->run([$job], $loader);
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
        $sum = fn (string $kind): int => \array_sum(\array_column($this->reads, $kind));
        return $this->counts + [
            'hits' => $sum('hits'),
            'misses' => $sum('misses'),
            'stale' => $sum('stale'),
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
            $this->leases->look();
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

    /** Returns a value of the memory, which does not know what the caller with a token has written. */
    private function remembered(Read $read, ?string $token = null): ?Result
    {
        $isAllowed = $this->options->memory > 0 && ($token ?? '') === '' && $read->error === null;
        $known = $isAllowed ? $this->memory->get("value $read->key") : null;
        if ($known === null || \array_diff($read->tags, $known[1]) !== []) {
            return null;
        }
        $this->counts['memory']++;
        $this->count($read, Entry::FRESH);
        return new Result($known[0], 'memory');
    }

    private function hit(Read $read, Entry $entry, float $begun): Result
    {
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
        $counts = &$this->reads[$read->name];
        $counts ??= ['hits' => 0, 'misses' => 0, 'stale' => 0];
        $counts[$state >= Entry::STALE ? 'hits' : 'misses']++;
        $counts['stale'] += (int) ($state === Entry::STALE);
    }

    /** Reads a key. */
    private function look(Read $read): Found
    {
        [$reply, $versions] = $this->backend->readOne($read);
        return $this->found($reply, $read->tags, $versions);
    }

    /**
     * Returns the state of what was read. It asks for the versions of tags that only the entry has.
     *
     * @param list<string>  $tags
     * @param array<string> $versions
     */
    private function found(mixed $reply, array $tags, array $versions): Found
    {
        if (Fault::isAway($reply)) {
            return new Found(Entry::MISS, isAway: true);
        }
        $this->refusal = null;
        if ($reply instanceof \Exception) {
            $this->log->warning('Redis refuses to read a key, which is loaded each time', $reply);
            $this->refusal = \str_starts_with($reply->getMessage(), 'NOPERM') ? $reply : null;
        }
        if (!\is_string($reply)) {
            return new Found($reply === false ? Entry::MISS : Entry::FOREIGN);
        }
        $entry = Entry::parse($reply);
        if (!$entry instanceof Entry) {
            return new Found($entry === false ? Entry::FOREIGN : Entry::MISS, $reply);
        }
        $state = $entry->judge($tags, $versions, $this->backend->alive->now());
        if (\is_array($state)) {
            $more = $this->backend->versions($state);
            if ($more instanceof \Exception) {
                return new Found(Entry::MISS, isAway: true);
            }
            $state = $entry->judge($tags, $versions + $more, $this->backend->alive->now());
        }
        return new Found($state, $reply, $entry);
    }

    /**
     * Returns values that were not found fresh.
     *
     * @param array<Job> $jobs by key
     *
     * @return array<Result> by key
     */
    private function resolve(array $jobs, callable $loader): array
    {
        $results = [];
        foreach ($jobs as $key => $job) {
            $this->count($job->read, $job->state);
            $isPaused = isset($this->loading[$key]) || $this->shared->get("pause $key") !== null;
            $isAnswered = $isPaused || $this->isLater && $job->state === Entry::STALE;
            if ($isAnswered && $job->state >= Entry::ON_ERROR) {
                $results[$key] = $job->expired();
                if (!$isPaused) {
                    $this->postponed[$key] = [$job, $loader];
                    $this->register();
                }
                continue;
            }
            $this->refuseOwn($job->read); // or it would wait for the lease that its own loader has
        }
        return $results + $this->run(\array_values(\array_diff_key($jobs, $results)), $loader);
    }

    /**
     * Takes leases, loads what no one else loads, and waits for the rest.
     *
     * @param list<Job> $jobs
     *
     * @return array<Result> by key
     */
    private function run(array $jobs, callable $loader): array
    {
        $waiting = $ready = $results = []; // waiting: for a lease, or the load of others
        foreach ($jobs as $job) {
            $canStore = Names::lease($job->read->key) !== null && Names::areStampable($job->read->tags);
            $mayStore = $canStore && !$job->found->isAway && $job->state !== Entry::FOREIGN;
            $mayStore ? $waiting[] = $job : $ready[] = $job;
            $canStore || $this->log->warning(self::UNNAMED, "the key {$job->read->key}");
        }
        try {
            while ($waiting !== [] || $ready !== []) {
                $asked = $waiting;
                $waiting = [];
                $this->leases->ask($asked, $this->isUsable(...));
                foreach ($asked as $job) {
                    if ($job->brought !== null) {
                        $results[$job->read->key] = new Result($job->brought->value, 'redis');
                    } elseif ($job->wait !== null) {
                        $waiting[] = $job;
                    } elseif ($job->lease === null && $job->state === Entry::STALE) {
                        $results[$job->read->key] = $job->expired();
                    } else {
                        $ready[] = $job;
                    }
                }
                if ($ready !== []) {
                    $results = $this->loadAll($ready, $loader) + $results;
                    $ready = [];
                } elseif ($waiting !== []) {
                    \usleep((int) (1000 * \min(\array_column($waiting, 'wait'))));
                }
            }
            return $results;
        } finally {
            $this->leases->release($jobs, false); // after an unexpected exception
            if ($this->leases->lost !== []) {
                $this->register();
            }
        }
    }

    /** Takes a value that another reader has stored, or notes that it is of no use. */
    private function isUsable(Job $job, string $bytes): bool
    {
        $found = $this->found($bytes, $job->read->tags, $job->versions);
        if ($found->state === Entry::FRESH && !$job->mustLoad) {
            $job->brought = $found->entry;
            return true;
        }
        $job->hash = \sha1($bytes);
        return $found->isAway || $found->state === Entry::FOREIGN;
    }

    /**
     * Loads values together, and stores those that have a lease.
     *
     * @param list<Job> $jobs
     *
     * @return array<Result> by key
     */
    private function loadAll(array $jobs, callable $loader): array
    {
        $load = new Load();
        $begun = Shared::now();
        try {
            $values = $this->load(\array_column($jobs, 'read'), $loader, $load);
        } catch (\Throwable $e) {
            $this->leases->release($jobs, false);
            return $this->instead($jobs, $e);
        }
        $d = (int) \round(Shared::now() - $begun);
        $results = $storable = [];
        foreach ($jobs as $job) {
            $value = $values[$job->read->key] ?? null;
            try {
                $job->json = Entry::encode($value);
                $value = Entry::decode($job->json); // as callers that find it in Redis get it
                if ($job->lease !== null) {
                    $storable[] = $job;
                }
            } catch (\Throwable $e) { // also of a JsonSerializable
                $this->counts['errors']++;
                $this->log->warning('a value cannot be stored', $e);
            }
            $results[$job->read->key] = new Result($value, 'loader');
        }
        $this->store($storable, $load, $d, $begun);
        $this->leases->release($jobs, true); // those that are not stored, before the caller gets the value
        return $results;
    }

    /**
     * Returns expired values in place of those that cannot be loaded.
     *
     * @param list<Job> $jobs
     *
     * @return array<Result> by key
     *
     * @throws \Throwable the error, if there is no such value
     */
    private function instead(array $jobs, \Throwable $error): array
    {
        $results = [];
        foreach ($jobs as $job) {
            $until = Shared::now() + self::LOAD_PAUSE * \random_int(750, 1250) / 1000;
            $this->shared->set("pause {$job->read->key}", true, $until);
        }
        foreach ($jobs as $job) {
            $isKept = $job->state >= Entry::ON_ERROR;
            if ($job->state === Entry::ON_ERROR) {
                $again = $this->look($job->read);
                $isKept = $again->state >= Entry::ON_ERROR && $again->bytes === $job->found->bytes;
            }
            if (!$isKept) {
                throw $error;
            }
            $results[$job->read->key] = $job->expired();
        }
        $this->log->warning('a load has failed: expired values are returned', $error);
        return $results;
    }

    /**
     * Stores values under their leases.
     *
     * @param list<Job> $jobs
     */
    private function store(array $jobs, Load $load, int $d, float $begun): void
    {
        [$named, $ttl, $isSkipped] = $load->settings();
        if ($isSkipped) {
            return;
        }
        if (!Names::areStampable($named)) {
            $this->log->warning(self::UNNAMED, 'the tags ' . \implode(', ', $named));
            return;
        }
        $late = $fills = [];
        foreach ($jobs as $job) {
            $late += \array_diff_key(\array_flip($named), $job->versions);
        }
        $longest = \max([1.25 * (int) $ttl, ...\array_column($jobs, 'longest')]);
        $late = $this->leases->versions(\array_map(\strval(...), \array_keys($late)), $longest);
        foreach ($jobs as $job) {
            $versions = \array_intersect_key($job->versions + $late, \array_flip([...$job->read->tags, ...$named]));
            $life = $job->life($ttl);
            if ($life['fresh'] < 1 || \in_array('', $versions, true)) {
                continue;
            }
            // Versions that are from after the load: the tags are stored alone, in an entry that has
            // expired. The next load, of any process, asks for their versions before it begins.
            $isWhole = \array_diff_key($versions, $job->versions) === [];
            $now = (int) $this->backend->alive->now();
            $entry = $isWhole ? $job->entry($now, $life, $versions, $d) : $job->tagsOnly($versions);
            $fills[] = [$job, $entry, $life['fresh'] + \max($life['stale'], $life['onError']), $isWhole];
        }
        foreach ($this->leases->fill($fills) as $i => $accepted) {
            [$job, $entry, , $isWhole] = $fills[$i];
            if ($isWhole || !$accepted) {
                $this->counts[$accepted === null ? 'errors' : ($accepted ? 'sets' : 'refused')]++;
            }
            if ($isWhole && $accepted && $this->options->memory > 0) {
                $this->remember($job->read, Entry::parse($entry), $begun);
            }
        }
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
