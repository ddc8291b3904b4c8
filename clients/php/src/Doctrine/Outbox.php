<?php

declare(strict_types=1);

namespace Unstale\Doctrine;

use Doctrine\DBAL\Connection;
use Unstale\Committed;
use Unstale\Invalidation;
use Unstale\Outbox as Rows;
use Unstale\Transaction;

/**
 * Inserts rows for the worker in transactions of Doctrine DBAL 3 and 4. With the ORM, take the
 * connection of the entity manager, in `wrapInTransaction` or after `beginTransaction`.
 */
final class Outbox
{
    public function __construct(private readonly Rows $rows = new Rows())
    {
    }

    /**
     * Is `Unstale\Outbox::enqueue` in the open transaction of the connection. A rollback to a
     * savepoint removes the rows too.
     *
     * @throws \LogicException                   without a transaction, or with a driver that is not
     *                                           pdo_mysql
     * @throws \Unstale\FieldError|\PDOException as it does
     */
    public function enqueue(Connection $connection, Invalidation ...$invalidations): void
    {
        $this->rows->enqueue(self::pdo($connection), ...$invalidations);
    }

    /**
     * Is `transactional`, and returns also the write token of the rows of `$tx->enqueue`. Inside of
     * another transaction the token is '', because nothing is committed yet. It repeats nothing.
     *
     * @param callable(Transaction): mixed $function
     */
    public function inTransaction(Connection $connection, callable $function): Committed
    {
        $tx = $this->rows->collect(self::pdo($connection));
        $result = $connection->transactional(static fn (): mixed => $tx->run($function));
        return new Committed($result, $connection->isTransactionActive() ? '' : $tx->token());
    }

    private static function pdo(Connection $connection): \PDO
    {
        $pdo = $connection->getNativeConnection();
        return $pdo instanceof \PDO
            ? $pdo
            : throw new \LogicException('unstale needs the driver pdo_mysql, and this is ' . \get_debug_type($pdo));
    }
}
