<?php

declare(strict_types=1);

namespace Unstale;

/** A transaction, and the rows that it has enqueued, for a write token. */
final class Transaction
{
    // Contract: the single row of cache_outbox_source, under a shared lock, which delays no session
    // because the row is never written. A plain read would give the transaction its snapshot.
    private const SQL = 'SELECT s.id, UNIX_TIMESTAMP(), @@SESSION.auto_increment_increment'
        . ' FROM cache_outbox_source AS s LOCK IN SHARE MODE';

    private Token $token;
    private int $begun = 0; // ns
    private int $step = 1;
    private bool $ended = false;
    private ?\Throwable $failed = null;

    /** @internal Call Outbox::collect. */
    public function __construct(public readonly \PDO $pdo)
    {
        $this->token = Token::parse('');
    }

    /**
     * Is like Outbox::enqueue, and collects the rows that are not delayed. If it fails in
     * `inTransaction`, the transaction is rolled back, even if the exception is caught. The account
     * needs SELECT on cache_outbox_source.
     *
     * @throws FieldError
     * @throws \LogicException
     * @throws \PDOException
     */
    public function enqueue(Invalidation ...$invalidations): void
    {
        if ($this->ended) {
            throw new \LogicException('enqueue: the transaction has ended');
        }
        try {
            Insert::into($this->pdo, $invalidations, $this->readSource(...), function (int $first, int $count): void {
                $first > 0 || throw new \RuntimeException('insert invalidations: the server tells no id of the rows');
                $runs = [...$this->token->runs, [$first, $count, $this->step]];
                $this->token = Token::of($this->token->source, $this->token->made, $runs, $this->token->many);
            });
        } catch (\Throwable $error) {
            $this->failed ??= $error;
            throw $error;
        }
    }

    /**
     * Returns the text of the token of all rows, '' without any. Call it after COMMIT: the token
     * counts for five minutes from then on.
     */
    public function token(): string
    {
        $made = $this->token->made + \intdiv(\hrtime(true) - $this->begun, 1_000_000_000);
        return (string) Token::of($this->token->source, $made, $this->token->runs, $this->token->many);
    }

    /**
     * Calls a function with the transaction, which it ends.
     *
     * @internal
     *
     * @throws \Throwable what the function has thrown, or an `enqueue` whose error it has caught
     */
    public function run(callable $function): mixed
    {
        try {
            $result = $function($this);
        } finally {
            $this->ended = true;
        }
        return $this->failed === null ? $result : throw $this->failed;
    }

    private function readSource(): void
    {
        if ($this->token->source !== '') {
            return;
        }
        $this->begun = \hrtime(true);
        try {
            $rows = $this->pdo->query(self::SQL)->fetchAll(\PDO::FETCH_NUM);
        } catch (\PDOException $error) {
            throw new \RuntimeException("read the outbox's id (unstale migrate up makes it;"
                . ' the account needs SELECT on cache_outbox_source): ' . $error->getMessage(), 0, $error);
        }
        if ($rows === []) {
            throw new \RuntimeException('cache_outbox_source has no row; run unstale migrate up');
        }
        if (\count($rows) > 1) {
            throw new \RuntimeException('cache_outbox_source has ' . \count($rows) . ' rows, as in a keyspace with'
                . ' several shards, and each shard has an outbox of its own; connect to one shard');
        }
        [$source, $made, $step] = $rows[0];
        $this->token = Token::of($source, (int) $made, []);
        $this->step = (int) $step;
    }
}
