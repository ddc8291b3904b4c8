<?php

declare(strict_types=1);

namespace Unstale;

/** Why Redis has not answered: in logs, and from `Cache::healthy`. */
final class Fault extends \RuntimeException
{
    /** @param bool $isSent Redis may have got the command, or get it yet */
    public function __construct(string $message, public readonly bool $isSent, ?\Throwable $previous = null)
    {
        parent::__construct($message, 0, $previous);
    }

    /**
     * Reports whether a reply did not come, or is of a server that serves no client now.
     *
     * @internal
     */
    public static function isAway(mixed $reply): bool
    {
        return $reply instanceof self || $reply instanceof \RedisException && \preg_match(
            '/^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|NOAUTH|WRONGPASS|NOREPLICAS) /',
            $reply->getMessage(),
        ) === 1;
    }

    /**
     * Reports whether Redis may run, or have run, a command whose reply is an error.
     *
     * @internal
     */
    public static function mayRun(mixed $reply): bool
    {
        if ($reply instanceof self) {
            return $reply->isSent;
        }
        return $reply instanceof \RedisException
            && \preg_match('/^(MOVED|ASK|TRYAGAIN) /', $reply->getMessage()) === 1;
    }
}
