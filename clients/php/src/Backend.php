<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Sends commands to Redis on a connection of its own: each round trip within the timeout, and none
 * while Redis is known to be away. A reply is what Redis answers (false for nothing), a
 * \RedisException for an error that Redis answers, or a Fault if it has not answered.
 *
 * @internal
 */
final class Backend
{
    public readonly Alive $alive;

    /** Answers that were not used, since workers have left the server. */
    public int $strays = 0;

    private const MOST_KEYS = 500; // of one MGET
    private const SEARCH_LIFE = 1000; // ms
    private const TOLERATED = 2; // failures in a row in this process; a timeout counts as so many
    private const TOLERATED_BY_ALL = 5; // in all processes

    private \Redis|\RedisCluster|null $link = null;
    private int $process = 0; // of the link
    private int $failed = 0; // in a row
    private float $until = 0; // when to try again
    private ?Fault $fault = null; // the latest
    private bool $isShared = false; // other processes know of failures
    private float $searched = -\INF; // when a new connection has shown whether workers have left
    private bool $hasMoved = false; // what it has shown

    public function __construct(
        private readonly Connections $connections,
        private readonly Options $options,
        private readonly Shared $shared,
        private readonly Log $log,
    ) {
        $this->alive = new Alive($options->source, $connections->isCluster, $shared);
    }

    /**
     * Is like `read` for one read, in less time for a hit.
     *
     * @return array{mixed, array<string>}
     */
    public function readOne(Read $read): array
    {
        $names = [$read->key];
        foreach ($read->tags as $tag) {
            $names[] = "stamp:$tag"; // as Names::stamp
        }
        $values = $this->quickly($names);
        if ($values === null) {
            return $this->read([$read])[$read->key];
        }
        $versions = [];
        foreach ($read->tags as $i => $tag) {
            $versions[$tag] = (string) $values[$i + 1];
        }
        return [$values[0], $versions];
    }

    /**
     * Returns what keys have, false for nothing, if there is a connection without a question to ask and
     * Redis answers without an error. Null: `run` has to read them.
     *
     * @param list<string> $names
     *
     * @return list<string|false>|null
     */
    private function quickly(array $names): ?array
    {
        $link = $this->link;
        $begun = \hrtime(true) / 1e6; // as Shared::now
        if (
            !$link instanceof \Redis || $this->failed > 0 || $this->alive->isDue($begun)
            || $this->process !== \getmypid()
        ) {
            return null;
        }
        try {
            $values = isset($names[1]) ? @$link->mGet($names) : [@$link->get($names[0])];
        } catch (\RedisException $e) {
            if (!self::isReply($e)) {
                $this->drop();
                $this->isLate($begun) && $this->fail(new Fault('Redis has not answered', true, $e), true);
            }
            return null;
        }
        if (($values[0] ?? false) === false && $link->getLastError() !== null) {
            $link->clearLastError();
            return null;
        }
        return $values;
    }

    /** Reports whether what began then has taken the timeout. */
    private function isLate(float $begun): bool
    {
        return Shared::now() - $begun >= 0.9 * $this->options->timeout;
    }

    /**
     * Reads keys and the versions of their tags with one round trip.
     *
     * @param list<Read> $reads
     *
     * @return array<array{mixed, array<string>}> by key: what the key has, and the versions by tag, '' for none
     */
    public function read(array $reads): array
    {
        $names = $results = [];
        foreach ($reads as $read) {
            $names[] = $read->key;
            foreach ($read->tags as $tag) {
                $names[] = Names::stamp($tag);
            }
        }
        $names = \array_values(\array_unique($names));
        $values = \array_combine($names, $this->values($names));
        foreach ($reads as $read) {
            $versions = self::pick($read->tags, $values);
            $results[$read->key] = \is_array($versions) ? [$values[$read->key], $versions] : [$versions, []];
        }
        return $results;
    }

    /**
     * Returns the versions of tags, '' for none, or why they are unknown.
     *
     * @param list<string> $tags
     *
     * @return array<string>|\Exception
     */
    public function versions(array $tags): array|\Exception
    {
        $names = \array_map(Names::stamp(...), $tags);
        return self::pick($tags, \array_combine($names, $this->values($names)));
    }

    /**
     * Does what `versions` does, with values by name.
     *
     * @param list<string> $tags
     * @param array<mixed> $values
     *
     * @return array<string>|\Exception
     */
    private static function pick(array $tags, array $values): array|\Exception
    {
        $versions = [];
        foreach ($tags as $tag) {
            $value = $values[Names::stamp($tag)];
            if (Fault::isAway($value)) {
                return $value;
            }
            $versions[$tag] = \is_string($value) ? $value : '';
        }
        return $versions;
    }

    /**
     * Returns what keys have that hold texts, in their order.
     *
     * @param list<string> $keys
     *
     * @return list<mixed>
     */
    private function values(array $keys): array
    {
        if (\count($keys) === 1) {
            return $this->run([['GET', $keys[0]]], $keys[0]);
        }
        $get = static fn (string $key): array => ['GET', $key];
        if ($this->connections->isCluster) {
            return $this->run(\array_map($get, $keys), $keys[0] ?? null);
        }
        $chunks = \array_chunk($keys, self::MOST_KEYS);
        $commands = \array_map(static fn (array $chunk): array => ['MGET', ...$chunk], $chunks);
        $values = [];
        foreach ($this->run($commands, $keys[0] ?? null) as $i => $reply) {
            if ($reply instanceof \RedisException && !Fault::isAway($reply)) {
                return $this->run(\array_map($get, $keys)); // perhaps one of them may not be read by the user
            }
            \array_push($values, ...(\is_array($reply) ? $reply : \array_fill(0, \count($chunks[$i]), $reply)));
        }
        return $values;
    }

    /** Returns why nothing is sent, or null. */
    public function fault(): ?Fault
    {
        return $this->failed >= self::TOLERATED ? $this->fault : null;
    }

    /**
     * Sends commands. If no answer may be used, all have the same Fault. Behind requests for leases, the
     * same pipeline asks where workers write, and how long leases may be.
     *
     * @param list<list<string|int>> $commands
     * @param string|null            $key      one of theirs, if they may go again over a new connection
     *
     * @return list<mixed>
     */
    public function run(array $commands, ?string $key = null, bool $leases = false): array
    {
        if ($commands === []) {
            return [];
        }
        $replies = null;
        for ($isFirst = true;; $isFirst = false) {
            $begun = Shared::now();
            if ($this->failed >= self::TOLERATED && $begun < $this->until) {
                $fault = new Fault('Redis is away', false, $this->fault);
                break;
            }
            [$wasOpen, $strays] = [$this->link !== null, $this->strays];
            try {
                $replies = $this->sendTo($this->link(), $commands, $key, $leases);
                break;
            } catch (Fault $fault) {
                $isLate = $this->isLate($begun);
                $isStray = $strays !== $this->strays;
            }
            // A connection that was idle has ended, or leads elsewhere: reads go again over a new one.
            if (!$isFirst || $key === null || !$isStray && (!$wasOpen || $isLate)) {
                $isStray || $this->fail($fault, $isLate);
                break;
            }
        }
        if ($replies === null) {
            return \array_fill(0, \count($commands), $fault);
        }
        foreach ($replies as $reply) {
            if (\is_object($reply) && Fault::isAway($reply)) {
                $this->drop();
                $this->fail(new Fault($reply->getMessage(), true, $reply), false);
                return $replies;
            }
        }
        if ($this->failed > 0 || $this->isShared) {
            $this->succeed();
        }
        return $replies;
    }

    /**
     * Sends a pipeline, with the question where workers write if that is due.
     *
     * @param list<list<string|int>> $commands
     *
     * @return list<mixed>
     *
     * @throws Fault
     */
    private function sendTo(\Redis|\RedisCluster $link, array $commands, ?string $key, bool $leases): array
    {
        $question = $this->alive->question($key, $leases);
        if ($question === []) {
            $replies = $this->send($link, $commands);
        } else {
            if ($this->connections->isCluster) {
                $first = $commands[0][\str_starts_with($commands[0][0], 'EVAL') ? 3 : 1];
                $question = [['TIME', (string) $first]]; // of the node that has the first key
            }
            // In front of reads, since a master may become a replica between the two.
            $all = $leases ? [...$commands, ...$question] : [...$question, ...$commands];
            $replies = $this->send($link, $all);
            $this->check(\array_splice($replies, $leases ? \count($commands) : 0, \count($question)), $key);
        }
        foreach ($replies as $i => $reply) {
            if ($reply instanceof \RedisException && \str_starts_with($reply->getMessage(), 'NOSCRIPT')) {
                [$replies[$i]] = $this->send($link, [Scripts::whole($commands[$i])]);
            }
        }
        return $replies;
    }

    /**
     * Sends commands in one write; in a Cluster one by one.
     *
     * @param list<list<string|int>> $commands
     *
     * @return list<mixed>
     *
     * @throws Fault after which the connection must not be used: it would return late answers for later commands
     */
    private function send(\Redis|\RedisCluster $link, array $commands): array
    {
        try {
            $replies = $link instanceof \Redis && \count($commands) > 1 ? self::pipeline($link, $commands) : [];
            if ($replies !== [] && $link->getLastError() === null) {
                return $replies;
            }
            $link->clearLastError();
            // One by one: all commands can be repeated, and those with errors had no effect.
            foreach ($commands as $i => $command) {
                if (($replies[$i] ?? false) === false) {
                    $replies[$i] = self::one($link, $command);
                }
            }
            return $replies;
        } catch (\RedisException | \RedisClusterException $e) {
            $link === $this->link ? $this->drop() : $link->close();
            throw new Fault('Redis has not answered: ' . $e->getMessage(), true, $e);
        }
    }

    /**
     * Returns the replies of a pipeline, false for an error; or nothing, if an error hides the replies.
     *
     * @param list<list<string|int>> $commands
     *
     * @return list<mixed>
     */
    private static function pipeline(\Redis $link, array $commands): array
    {
        $pipeline = $link->pipeline();
        // phpredis waits for each reply of rawCommand() that is late. A late one of time() closes the
        // connection, which ends the wait.
        $isAsked = $commands[0] === ['TIME'];
        $isAsked || $pipeline->time();
        foreach ($commands as $command) {
            $command === ['TIME'] ? $pipeline->time() : $pipeline->rawCommand(...$command);
        }
        try {
            $replies = @$pipeline->exec(); // its notices are errors too
        } catch (\RedisException $e) {
            return self::isReply($e) ? [] : throw $e; // phpredis has read the others
        }
        $replies = \is_array($replies) ? \array_slice($replies, $isAsked ? 0 : 1) : [];
        if (\count($replies) !== \count($commands)) {
            throw new \RedisException('the pipeline has no answer');
        }
        return $replies;
    }

    /** @param list<string|int> $command */
    private static function one(\Redis|\RedisCluster $link, array $command): mixed
    {
        try {
            $reply = $link instanceof \Redis ? @$link->rawCommand(...$command) : self::onCluster($link, $command);
        } catch (\RedisException | \RedisClusterException $e) {
            return self::isReply($e) ? new \RedisException($e->getMessage(), 0, $e) : throw $e;
        }
        if ($reply === false && $link->getLastError() !== null) {
            $reply = new \RedisException(\rtrim($link->getLastError(), "\0"));
            $link->clearLastError();
        }
        return $reply;
    }

    /** Reports whether a server has answered with this error. */
    private static function isReply(\Exception $e): bool
    {
        return \preg_match('/^[A-Z][A-Z0-9]+( |$)/', $e->getMessage()) === 1;
    }

    /**
     * Sends a command with a method that follows a slot which moves: rawCommand() does not.
     *
     * @param list<string|int> $command
     */
    private static function onCluster(\RedisCluster $cluster, array $command): mixed
    {
        return match ($command[0]) {
            'GET' => @$cluster->get($command[1]),
            'EVALSHA' => @$cluster->evalsha($command[1], \array_slice($command, 3), $command[2]),
            'EVAL' => @$cluster->eval($command[1], \array_slice($command, 3), $command[2]),
            'UNLINK' => @$cluster->unlink(\array_slice($command, 1)),
            'TIME' => @$cluster->time($command[1]),
        };
    }

    /**
     * Throws if an answer proves that the server must not be used.
     *
     * @param list<mixed> $answers
     *
     * @throws Fault
     */
    private function check(array $answers, ?string $key): void
    {
        $presence = $this->alive->answer($answers);
        if ($presence === Alive::REPLICA) {
            $this->drop();
            throw new Fault('the server is a replica, which is behind', true);
        }
        if ($presence === Alive::OLD && $this->hasMoved($key)) {
            $this->strays++;
            throw new Fault('workers have left the server that answered', true);
        }
    }

    /** Reports whether workers have left the server, by the latest search. */
    private function hasMoved(?string $key): bool
    {
        if (Shared::now() - $this->searched >= self::SEARCH_LIFE) {
            $this->searched = Shared::now();
            $this->hasMoved = $this->search($key);
        }
        return $this->hasMoved;
    }

    /**
     * Finds out whether workers have left the server, or none runs: in the first case a new connection
     * leads to them, or to where they have written since, and is used from now on. One that leads to a
     * replica proves nothing about the server, which is not used until the next search.
     */
    private function search(?string $key): bool
    {
        try {
            $link = $this->connections->open($this->options->timeout / 1000, true);
            $there = new Alive($this->options->source, false, $this->shared);
            $presence = $there->answer($this->send($link, $there->question($key, true)));
        } catch (Fault) {
            return false;
        }
        if ($presence === Alive::REPLICA || $there->latest === null || $there->latest === $this->alive->latest) {
            $link->close();
            return $presence === Alive::REPLICA;
        }
        $this->log->warning('workers have left the server of a connection: another connection replaces it');
        $this->use($link);
        $this->searched = -\INF;
        return true;
    }

    /** @throws Fault */
    private function link(): \Redis|\RedisCluster
    {
        if ($this->link !== null && $this->process === \getmypid()) {
            return $this->link;
        }
        $this->link = null; // the other process of a fork uses that one
        $now = Shared::now();
        if ($now < (float) $this->shared->get('away')) {
            throw new Fault('Redis is away', false, $this->fault);
        }
        $failures = (int) $this->shared->get('failures');
        $this->isShared = $failures > 0;
        if ($failures >= self::TOLERATED_BY_ALL) {
            $this->shared->set('away', $now + $this->options->pause, $now + $this->options->pause); // this one tries
        }
        $this->use($this->connections->open($this->options->timeout / 1000, false));
        return $this->link;
    }

    private function fail(Fault $fault, bool $isLate): void
    {
        $now = Shared::now();
        $pause = $this->options->pause;
        $wasAway = $this->failed >= self::TOLERATED;
        $this->fault = $fault;
        $this->failed += $isLate ? self::TOLERATED : 1;
        if ($this->failed < self::TOLERATED) {
            return;
        }
        $this->until = $now + $pause;
        $this->isShared = true;
        $failures = 1 + (int) $this->shared->get('failures');
        $this->shared->set('failures', $failures, $now + 10 * $pause);
        if ($failures >= self::TOLERATED_BY_ALL) {
            $this->shared->set('away', $this->until, $this->until);
        }
        $wasAway || $this->log->warning('Redis is away: every call loads', $fault);
    }

    private function succeed(): void
    {
        $this->failed >= self::TOLERATED && $this->log->warning('Redis is back');
        $this->failed = 0;
        $this->isShared = false;
        $this->shared->forget('failures');
        $this->shared->forget('away');
    }

    private function use(\Redis|\RedisCluster $link): void
    {
        $this->drop();
        $this->link = $link;
        $this->process = \getmypid();
        $this->alive->renew();
    }

    /** Closes the connection, also one of pconnect: nothing gets its late answers. */
    private function drop(): void
    {
        try {
            $this->link?->close();
        } catch (\RedisException | \RedisClusterException) {
            // it was closed
        }
        $this->link = null;
    }
}
