<?php

declare(strict_types=1);

namespace Unstale\Laravel;

use Illuminate\Database\ConnectionResolverInterface;
use Unstale\Committed;
use Unstale\Invalidation;
use Unstale\Outbox as Rows;
use Unstale\Transaction;

/** Inserts rows for the worker in transactions of Laravel's `DB`. The container makes it. */
final class Outbox
{
    public function __construct(
        private readonly ConnectionResolverInterface $db,
        private readonly Rows $rows = new Rows(),
    ) {
    }

    /**
     * Is `Unstale\Outbox::enqueue` in the open transaction of a connection, by default the default
     * one. A rollback of a nested `DB::transaction` removes its rows too.
     *
     * @param Invalidation|list<Invalidation> $invalidations
     *
     * @throws \Unstale\FieldError|\LogicException|\PDOException as it does
     */
    public function enqueue(Invalidation|array $invalidations, ?string $connection = null): void
    {
        $invalidations = $invalidations instanceof Invalidation ? [$invalidations] : $invalidations;
        $this->rows->enqueue($this->db->connection($connection)->getPdo(), ...$invalidations);
    }

    /**
     * Is `DB::transaction`, and returns also the write token of the rows of `$tx->enqueue`. Inside
     * of another transaction the token is '', because nothing is committed yet.
     *
     * @param callable(Transaction): mixed $function
     * @param int                          $attempts how often it runs at most, after deadlocks
     */
    public function inTransaction(callable $function, int $attempts = 1, ?string $connection = null): Committed
    {
        $db = $this->db->connection($connection);
        $tx = null;
        $result = $db->transaction(function () use ($db, $function, &$tx): mixed {
            $tx = $this->rows->collect($db->getPdo());
            return $tx->run($function);
        }, $attempts);
        return new Committed($result, $db->transactionLevel() > 0 ? '' : $tx->token());
    }
}
