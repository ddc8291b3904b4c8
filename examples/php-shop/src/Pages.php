<?php

declare(strict_types=1);

namespace Shop;

/** What the shop and its demo read. */
interface Pages
{
    /**
     * @param string $token of the customer's latest write
     *
     * @return array{id: int, cents: int}|null null: there is no such product
     */
    public function page(int $id, string $token = ''): ?array;
}
