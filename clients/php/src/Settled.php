<?php

declare(strict_types=1);

namespace Unstale;

/**
 * What the primary knows about the rows of a write token.
 *
 * @internal
 */
final readonly class Settled
{
    /**
     * @param bool    $isSettled the worker has settled all rows: their keys are gone from Redis
     * @param int     $left      for how many seconds the token counts still, by the database's clock
     * @param ?string $error     why the rows will not be settled, such as a dead letter
     */
    private function __construct(public bool $isSettled, public int $left, public ?string $error = null)
    {
    }

    /**
     * Asks the primary with one statement.
     *
     * @throws \RuntimeException if the state is unknown: the database fails, is read-only, or the session
     *                           reads an old snapshot
     */
    public static function ask(\PDO $primary, Token $token): self
    {
        if ($token->source === '') {
            return new self(true, 0);
        }
        if ($primary->inTransaction()) {
            throw self::unknown('the connection is in a transaction, which may read an old snapshot; use another one');
        }
        $statement = $primary->query($token->query(), \PDO::FETCH_NUM);
        $row = $statement === false ? false : $statement->fetch();
        if (!\is_array($row)) {
            throw self::unknown((string) ($primary->errorInfo()[2] ?? 'there is no answer'));
        }
        $statement->closeCursor();
        [$readOnly, $innodb, $autocommit, $isolation, $now, $source, $outboxes] = $row;
        $isOn = static fn (mixed $variable): bool => !\in_array(\strtoupper((string) $variable), ['0', 'OFF'], true);
        match (true) {
            $isOn($readOnly) || $isOn($innodb)
                => throw self::unknown('the server is read-only: it may be a replica, which is behind'),
            $outboxes > 1 => throw self::unknown("the database has $outboxes outboxes"),
            (string) $autocommit !== '1'
                => throw self::unknown('the session has autocommit off, so it reads an old snapshot; leave it on'),
            \str_starts_with((string) $isolation, 'READ-UNCOMMITTED') => throw self::unknown(
                'the session reads what is not committed; use READ COMMITTED or REPEATABLE READ',
            ),
            default => null,
        };
        $left = \max(\min(Token::LIFETIME, Token::LIFETIME + $token->made - (int) $now), 0);
        $error = match (true) {
            $source !== $token->source => 'the token belongs to another outbox',
            $token->many => 'the token has more than ' . Token::MOST_ROWS . ' rows, or too many ranges of IDs; '
                . 'whether they are settled is unknown',
            ($row[10] ?? '') !== '' => "a row of the token is a dead letter: $row[10]",
            default => null,
        };
        return new self($error === null && !\array_filter(\array_slice($row, 7, 3)), $left, $error);
    }

    private static function unknown(string $why): \RuntimeException
    {
        return new \RuntimeException("ask for invalidations: $why");
    }
}
