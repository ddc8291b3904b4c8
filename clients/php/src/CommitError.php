<?php

declare(strict_types=1);

namespace Unstale;

/** COMMIT failed, so the transaction may have been committed. */
final class CommitError extends \RuntimeException
{
    /** @param string $token the token of the rows, which may exist */
    public function __construct(public readonly string $token, \Throwable $previous)
    {
        parent::__construct('commit transaction: ' . $previous->getMessage(), 0, $previous);
    }
}
