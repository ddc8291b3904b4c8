<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The statements that insert invalidations.
 *
 * @internal
 */
final class Insert
{
    // A statement inserts at most this many rows and about this many bytes, far below the limits of
    // servers.
    private const MOST_ROWS = 500;
    private const MOST_BYTES = 1 << 20;

    // Contract: appends; takes no lock that another insert waits for; not repeatable (each run adds
    // rows).
    private const NOW = 'INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES ';
    private const LATER = 'INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, due_at) VALUES ';

    /**
     * Checks and inserts invalidations.
     *
     * @param iterable<Invalidation>        $invalidations
     * @param callable(): void|null         $before is called first if there are rows that are not delayed
     * @param callable(int, int): void|null $did    is called with the first ID and the number of rows of
     *                                              each statement, unless the rows are delayed
     */
    public static function into(
        \PDO $pdo,
        iterable $invalidations,
        ?callable $before = null,
        ?callable $did = null,
    ): void {
        [$now, $later] = Row::all($invalidations);
        if ($now === [] && $later === []) {
            return;
        }
        self::check($pdo);
        $mode = $pdo->getAttribute(\PDO::ATTR_ERRMODE);
        $pdo->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
        try {
            if ($now !== [] && $before !== null) {
                $before();
            }
            foreach (self::parts($now) as $rows) {
                self::insert($pdo, self::NOW, $rows);
                $did === null || $did((int) $pdo->lastInsertId(), \count($rows));
            }
            foreach (self::parts($later) as $rows) {
                self::insert($pdo, self::LATER, $rows);
            }
        } finally {
            $pdo->setAttribute(\PDO::ATTR_ERRMODE, $mode);
        }
        self::check($pdo);
    }

    /** A server that has rolled back after a deadlock, or has committed for a CREATE TABLE, has none. */
    private static function check(\PDO $pdo): void
    {
        if (!$pdo->inTransaction() && (bool) $pdo->getAttribute(\PDO::ATTR_AUTOCOMMIT)) {
            throw new \LogicException('enqueue: the connection has no transaction, or its transaction has ended;'
                . ' call beginTransaction() before the change');
        }
    }

    /**
     * @param list<list<string|null>> $rows
     *
     * @return iterable<list<list<string|null>>>
     */
    private static function parts(array $rows): iterable
    {
        $part = [];
        $bytes = 0;
        foreach ($rows as $row) {
            $size = \strlen(\implode('', $row));
            if (\count($part) === self::MOST_ROWS || ($part !== [] && $bytes + $size > self::MOST_BYTES)) {
                yield $part;
                [$part, $bytes] = [[], 0];
            }
            $part[] = $row;
            $bytes += $size;
        }
        if ($part !== []) {
            yield $part;
        }
    }

    /**
     * Binds every value as text or null: PARAM_INT would clip an ID above 2^63, and PARAM_STR alone may
     * mean a national string. Text that is not ASCII is sent as hex digits, which no charset of the
     * connection changes or refuses.
     *
     * @param list<list<string|null>> $rows
     */
    private static function insert(\PDO $pdo, string $sql, array $rows): void
    {
        [$tuples, $values] = [[], []];
        foreach ($rows as $row) {
            $marks = [];
            foreach ($row as $text) {
                $isASCII = $text === null || \preg_match('/[\x80-\xff]/', $text) === 0;
                $marks[] = $isASCII ? '?' : 'CONVERT(UNHEX(?) USING utf8mb4)';
                $values[] = $isASCII ? $text : \bin2hex($text);
            }
            $tuples[] = '(' . \implode(',', $marks) . ')';
        }
        $statement = $pdo->prepare($sql . \implode(',', $tuples));
        foreach ($values as $i => $text) {
            $statement->bindValue($i + 1, $text, \PDO::PARAM_STR | \PDO::PARAM_STR_CHAR);
        }
        $statement->execute();
    }
}
