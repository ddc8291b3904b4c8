<?php

declare(strict_types=1);

namespace Unstale;

/**
 * A write token names the rows of a write. Its text goes into a cookie or a header. It is not
 * signed: a forged token only makes its user's reads slower.
 */
final readonly class Token
{
    /** For how many seconds after the commit a token counts, by the database's clock. */
    public const LIFETIME = 300;

    /** The most bytes of a token's text. */
    public const LONGEST = 1024;

    /** The most rows of a token, and of one run of IDs. */
    public const MOST_ROWS = 1000;

    private const MOST_RUNS = 40;
    private const MOST_STEP = 65_535;
    private const MOST_MADE = 2_147_483_647_000;

    /**
     * @param string                         $source the ID of the outbox, '' in a token without rows
     * @param int                            $made   when the rows were committed, in seconds since
     *                                               1970 by the database's clock
     * @param list<array{int, int, int}>     $runs   IDs in ascending order: the first, how many,
     *                                               and the step from one to the next
     * @param bool                           $many   more rows than a token can name; there are no
     *                                               runs then, and it is never settled
     */
    private function __construct(
        public string $source = '',
        public int $made = 0,
        public array $runs = [],
        public bool $many = false,
    ) {
    }

    /**
     * Returns the token of rows that one transaction has inserted. Runs may come in any order.
     *
     * @param list<array{int, int, int}> $runs
     */
    public static function of(string $source, int $made, array $runs, bool $many = false): self
    {
        $joined = [];
        \usort($runs, static fn (array $a, array $b): int => [$a[0], $a[2]] <=> [$b[0], $b[2]]);
        foreach ($runs as $next) {
            [$first, $count, $step] = $joined[\count($joined) - 1] ?? [0, 0, 0];
            $last = $first + ($count - 1) * $step;
            if ($step !== $next[2] || ($next[0] - $first) % $step !== 0 || $next[0] - $last > $step) {
                $joined[] = $next;
            } elseif (self::last($next) > $last) {
                $joined[\count($joined) - 1][1] = \intdiv(self::last($next) - $first, $step) + 1;
            }
        }
        $rows = \array_sum(\array_column($joined, 1));
        $many = $many || \count($joined) > self::MOST_RUNS || $rows > self::MOST_ROWS;
        return new self($source, $made, $many ? [] : $joined, $many);
    }

    /**
     * Parses the text of a token, which may come from anyone. '' is a token without rows.
     *
     * @throws \ValueError for any other text that is not a token: ignore it
     */
    public static function parse(string $text): self
    {
        if ($text === '') {
            return new self();
        }
        $parts = \explode('.', $text, 5);
        if (\strlen($text) > self::LONGEST) {
            throw self::refuse('it has more than ' . self::LONGEST . ' bytes');
        }
        if ($parts[0] !== '1' || \count($parts) !== 4 || \preg_match('/^[0-9a-f]{32}$/D', $parts[1]) !== 1) {
            throw self::refuse('it does not have the form 1.SOURCE.MADE.RUNS');
        }
        [, $source, $time, $rows] = $parts;
        $made = self::number($time);
        if ($made === null || $made > self::MOST_MADE) {
            throw self::refuse('the time is not in seconds since 1970 in base 36');
        }
        if ($rows === '~') {
            return new self($source, $made, [], true);
        }
        $runs = \array_map(self::run(...), \explode('_', $rows));
        $token = self::of($source, $made, $runs);
        if ($token->many || \count($runs) > self::MOST_RUNS) {
            throw self::refuse('it names more than ' . self::MOST_ROWS . ' rows, or rows in more than '
                . self::MOST_RUNS . ' runs');
        }
        return $token;
    }

    /**
     * Returns a token with the rows of both, for example of the browser's token and the current
     * request. A token that is older by LIFETIME is dropped.
     *
     * @throws \ValueError if they come from different outboxes
     */
    public function join(self $other): self
    {
        if ($this->source === '' || $other->source === '') {
            return $this->source === '' ? $other : $this;
        }
        if ($this->source !== $other->source) {
            throw new \ValueError('the token belongs to another outbox');
        }
        [$older, $newer] = $this->made > $other->made ? [$other, $this] : [$this, $other];
        if ($newer->made - $older->made > self::LIFETIME) {
            return $newer;
        }
        return self::of($newer->source, $newer->made, [...$older->runs, ...$newer->runs], $older->many || $newer->many);
    }

    /** Returns the text: letters, digits and - . _ ~, at most LONGEST bytes; '' without rows. */
    public function __toString(): string
    {
        $runs = \array_map(static fn (array $run): string => \implode('-', \array_map(self::base36(...), match (true) {
            $run[1] === 1 => [$run[0]],
            $run[2] === 1 => [$run[0], $run[1]],
            default => $run,
        })), $this->runs);
        $rows = $this->many ? '~' : \implode('_', $runs);
        return $this->source === '' ? '' : "1.$this->source." . self::base36($this->made) . ".$rows";
    }

    /** Returns the statement that asks the primary for the state of the rows, for Settled. */
    public function query(): string
    {
        // No row has the ID 0: the token of too many rows asks only for its outbox.
        [$ids, $firsts] = [$this->condition('id'), $this->condition('first_id')];
        $spans = \array_map(
            static fn (array $run): string => "first_high >= $run[0] AND first_low <= " . self::last($run),
            $this->runs,
        );
        $span = \implode(' OR ', $spans) ?: 'FALSE';
        $least = $this->runs[0][0] ?? 0;
        // phpcs:disable Generic.Files.LineLength
        return <<<SQL
            SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@SESSION.autocommit,
              /*!80000 @@SESSION.transaction_isolation */ /*M!100100 @@SESSION.tx_isolation */,
              UNIX_TIMESTAMP(), COALESCE((SELECT MIN(id) FROM cache_outbox_source), ''), (SELECT COUNT(*) FROM cache_outbox_source),
              EXISTS (SELECT 1 FROM cache_outbox FORCE INDEX (PRIMARY) WHERE $ids),
              EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (first_id) WHERE ($firsts) AND repeated = 0),
              EXISTS (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (first_high)
                WHERE first_high >= $least AND swept_at IS NULL AND first_low > 0 AND ($span)),
              COALESCE((SELECT reason FROM cache_outbox_dead FORCE INDEX (first_id) WHERE ($firsts) AND repeated = 0 LIMIT 1), '')
            SQL;
        // phpcs:enable
    }

    /** Returns an SQL condition that a column has one of the IDs. */
    private function condition(string $column): string
    {
        $parts = \array_map(static function (array $run) use ($column): string {
            if ($run[1] === 1 || $run[2] === 1) {
                return "$column BETWEEN $run[0] AND " . self::last($run);
            }
            return "$column IN (" . \implode(',', \range($run[0], self::last($run), $run[2])) . ')';
        }, $this->runs);
        return \implode(' OR ', $parts) ?: "$column IN (0)";
    }

    /** @param array{int, int, int} $run */
    private static function last(array $run): int
    {
        return $run[0] + ($run[1] - 1) * $run[2];
    }

    /** @return array{int, int, int} */
    private static function run(string $text): array
    {
        $numbers = \array_map(self::number(...), \explode('-', $text, 4));
        if (\count($numbers) > 3 || \in_array(null, $numbers, true) || \in_array(0, $numbers, true)) {
            throw self::refuse('the rows are not numbers from 1 to 2^63 - 1 in base 36');
        }
        [$first, $count, $step] = $numbers + [1 => 1, 2 => 1];
        if ($count > self::MOST_ROWS || $step > self::MOST_STEP || $first > \PHP_INT_MAX - ($count - 1) * $step) {
            throw self::refuse('a number is too large');
        }
        return [$first, $count, $step];
    }

    /** Parses a number in base 36, in its shortest form. Null: it is none, or beyond 63 bits. */
    private static function number(string $text): ?int
    {
        $number = \preg_match('/^(0|[1-9a-z][0-9a-z]{0,12})$/D', $text) === 1 ? \intval($text, 36) : null;
        return $number !== null && self::base36($number) === $text ? $number : null;
    }

    /** Is base_convert(), which loses digits beyond 2^53. */
    private static function base36(int $number): string
    {
        $text = '';
        do {
            $text = '0123456789abcdefghijklmnopqrstuvwxyz'[$number % 36] . $text;
            $number = \intdiv($number, 36);
        } while ($number > 0);
        return $text;
    }

    private static function refuse(string $why): \ValueError
    {
        return new \ValueError("parse token: $why");
    }
}
