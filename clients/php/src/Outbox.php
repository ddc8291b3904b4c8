<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Writes invalidations to the outbox of the primary, in the transaction of the change.
 *
 * It works with any mode of PDO's prepares and errors, and any charset of the connection: texts are
 * stored byte for byte.
 */
final class Outbox
{
    private const TRIES = 5;
    private const BACKOFF = 5_000; // µs

    /**
     * Inserts invalidations in the transaction of the caller, which it neither commits nor rolls
     * back. The worker processes them after the commit. A rollback to a savepoint removes them too.
     *
     * It checks all of them first: if one is invalid, nothing is inserted.
     *
     * @throws FieldError      for an invalidation that cannot be written
     * @throws \LogicException if the connection has no transaction
     * @throws \PDOException   for an error of the database, in any error mode of PDO: then roll
     *                         back, since some rows may have been inserted
     */
    public function enqueue(\PDO $pdo, Invalidation ...$invalidations): void
    {
        Insert::into($pdo, $invalidations);
    }

    /**
     * Returns what collects the rows of one transaction of the caller, for a write token. Make one
     * per attempt, after the transaction has begun. `inTransaction` has its own.
     */
    public function collect(\PDO $pdo): Transaction
    {
        return new Transaction($pdo);
    }

    /**
     * Runs a function in a transaction, and commits. If the function throws, or one of its
     * `enqueue` calls has, it rolls back.
     *
     * It calls the function again, at most five times in total, after a deadlock (1213), a lock
     * wait timeout (1205) or, from MariaDB 11.8, a changed record (1020), also as the previous
     * exception of another, and if COMMIT fails because another node of a cluster changed a row
     * first. So the function must have no effects outside of the transaction.
     *
     * @template T
     *
     * @param callable(Transaction): T $function
     *
     * @return Committed<T>
     *
     * @throws CommitError     for any other error of COMMIT: the transaction may be committed
     * @throws \LogicException if the connection has a transaction already, if its error mode is not
     *                         exceptions, which would hide a deadlock, or if the function has ended
     *                         the transaction, for example with CREATE TABLE
     */
    public function inTransaction(\PDO $pdo, callable $function): Committed
    {
        if ($pdo->getAttribute(\PDO::ATTR_ERRMODE) !== \PDO::ERRMODE_EXCEPTION) {
            throw new \LogicException('begin transaction: set PDO::ATTR_ERRMODE to PDO::ERRMODE_EXCEPTION,'
                . ' since any other mode hides a deadlock');
        }
        if ($pdo->inTransaction()) {
            throw new \LogicException('begin transaction: the connection already has one; call enqueue() in it');
        }
        for ($try = 1;; $try++) {
            try {
                return self::attempt($pdo, $function);
            } catch (\Throwable $error) {
                if ($try === self::TRIES || !self::isContention($error)) {
                    throw $error;
                }
            }
            \usleep(\random_int($try * self::BACKOFF, 2 * $try * self::BACKOFF));
        }
    }

    private static function attempt(\PDO $pdo, callable $function): Committed
    {
        $pdo->beginTransaction();
        $transaction = new Transaction($pdo);
        $committing = false;
        try {
            $pdo->exec('SAVEPOINT unstale');
            $result = $transaction->run($function);
            if (!self::isSame($pdo)) {
                throw new \LogicException('commit transaction: the function has ended it, or has caught a deadlock');
            }
            $committing = true;
            $pdo->commit();
            return new Committed($result, $transaction->token());
        } catch (\Throwable $error) {
            try {
                $pdo->rollBack();
            } catch (\Throwable) {
                // It has ended, or the connection is lost, which ends it.
            }
            if ($committing && !self::isRollback($error)) {
                throw new CommitError($transaction->token(), $error);
            }
            throw $error;
        }
    }

    /** Reports whether the transaction is the one with the savepoint: without autocommit, another may have followed. */
    private static function isSame(\PDO $pdo): bool
    {
        try {
            return $pdo->inTransaction() && $pdo->exec('RELEASE SAVEPOINT unstale') !== false;
        } catch (\PDOException $error) {
            return ($error->errorInfo[1] ?? 0) !== 1305 ? throw $error : false;
        }
    }

    /** Reports whether another attempt may succeed after an error. */
    private static function isContention(\Throwable $error): bool
    {
        $test = static fn (int $number): bool => $number === 1205 || $number === 1020;
        return !$error instanceof CommitError && (self::hasNumber($error, $test) || self::isRollback($error));
    }

    /** Reports whether an error of COMMIT proves that the transaction is rolled back on all nodes. */
    private static function isRollback(\Throwable $error): bool
    {
        return self::hasNumber($error, static fn (int $number, string $text): bool => $number === 1213
            || $number === 3101 || ($number === 1180 && \str_contains($text, ' 149 ')));
    }

    /** @param callable(int, string): bool $test */
    private static function hasNumber(?\Throwable $error, callable $test): bool
    {
        for (; $error !== null; $error = $error->getPrevious()) {
            if ($error instanceof \PDOException && $test((int) ($error->errorInfo[1] ?? 0), $error->getMessage())) {
                return true;
            }
        }
        return false;
    }
}
