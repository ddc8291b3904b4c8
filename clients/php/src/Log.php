<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Logs each message at most once per minute, with APCu in all processes of a machine together.
 *
 * @internal
 */
final class Log
{
    private const PAUSE = 60_000;

    public function __construct(private readonly ?object $logger, private readonly Shared $shared)
    {
    }

    public function warning(string $message, \Throwable|string|null $why = null): void
    {
        if ($this->shared->get("log $message") !== null) {
            return;
        }
        $this->shared->set("log $message", true, Shared::now() + self::PAUSE);
        $isThrown = $why instanceof \Throwable;
        $reason = $isThrown ? $why->getMessage() : $why;
        try {
            if ($this->logger !== null) {
                $this->logger->warning($message, $isThrown ? ['exception' => $why] : ['reason' => $why]);
                return;
            }
        } catch (\Throwable $e) {
            $reason .= " (and the logger has failed: {$e->getMessage()})";
        }
        \error_log("unstale: $message" . ($reason === null ? '' : ": $reason"));
    }
}
