<?php

declare(strict_types=1);

namespace Unstale;

/**
 * The result of a transaction, and the write token of its rows.
 *
 * @template T
 */
final readonly class Committed
{
    /**
     * @param T      $result what the function returned
     * @param string $token  '' without rows
     */
    public function __construct(public mixed $result, public string $token)
    {
    }
}
