<?php

declare(strict_types=1);

namespace Unstale;

/** The settings of a cache. */
final readonly class Options
{
    /** The default of `lease`, in milliseconds. */
    public const LEASE = 10_000;

    /**
     * @param int                  $timeout for connecting to Redis, and for each read from the connection
     *                                      until an answer is complete, in milliseconds, 10 to 5,000
     * @param int                  $lease   how long a load may take, in milliseconds, for its value to be
     *                                      stored, 10 to 3,600,000. A shorter lease of the map counts
     * @param int                  $pause   for how many milliseconds nothing is sent after Redis has not
     *                                      answered in time, or two connections in a row failed, 1 to 60,000.
     *                                      With APCu, five failures count for all processes of this machine
     * @param string|null          $source  the ID of the outbox, if workers of several write to this Redis.
     *                                      Default: all
     * @param \PDO|\Closure|null   $primary a connection to the primary, or a function that returns one. It is
     *                                      asked about write tokens
     * @param object|null          $logger  of PSR-3. It receives outages and mistakes of the configuration,
     *                                      each at most once per minute. Default: error_log()
     * @param int                  $memory  for how many milliseconds a value is kept in APCu, and may be old
     *                                      there, up to 60,000. 0: not at all. Without APCu, each process
     *                                      keeps its own, of 256 values
     * @param bool|null            $later   whether expired values are replaced after the response, or by
     *                                      `Cache::finish`. False: immediately, by the call that finds them.
     *                                      Default: true if PHP can end the response, as in PHP-FPM
     *
     * @throws \ValueError for a number outside of its limits
     */
    public function __construct(
        public int $timeout = 100,
        public int $lease = self::LEASE,
        public int $pause = 1000,
        public ?string $source = null,
        public \PDO|\Closure|null $primary = null,
        public ?object $logger = null,
        public int $memory = 0,
        public ?bool $later = null,
    ) {
        $limits = [
            'timeout' => [10, 5000],
            'lease' => [10, 3_600_000],
            'pause' => [1, 60_000],
            'memory' => [0, 60_000],
        ];
        foreach ($limits as $name => [$least, $most]) {
            if ($this->$name < $least || $this->$name > $most) {
                throw new \ValueError("$name is {$this->$name}, wanted $least to $most");
            }
        }
        if ($logger !== null && !\method_exists($logger, 'warning')) {
            throw new \ValueError('logger has no method warning: it must be a logger of PSR-3');
        }
    }
}
