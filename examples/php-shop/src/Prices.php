<?php

declare(strict_types=1);

namespace Shop;

use Unstale\Outbox;
use Unstale\Transaction;

/** The prices in MySQL. */
final class Prices
{
    public function __construct(private readonly \PDO $mysql, private readonly Outbox $outbox = new Outbox())
    {
    }

    /**
     * Changes a price. The row for the worker commits together with the change, or not at all.
     *
     * @return string the token of this write, for a cookie
     */
    public function change(int $id, int $cents): string
    {
        return $this->outbox->inTransaction($this->mysql, function (Transaction $tx) use ($id, $cents): void {
            $this->mysql->prepare('UPDATE products SET price_cents = ? WHERE id = ?')->execute([$cents, $id]);
            $tx->enqueue(ShopCache::invalidateProduct($id));
        })->token;
    }

    /**
     * Loads what a customer sees of a product from the primary, and takes up to 100 ms to make it.
     *
     * @return array{id: int, cents: int}|null
     */
    public function load(int $id): ?array
    {
        $statement = $this->mysql->prepare('SELECT price_cents FROM products WHERE id = ?');
        $statement->execute([$id]);
        $cents = $statement->fetchColumn();
        \usleep(\random_int(0, 100_000));
        return $cents === false ? null : ['id' => $id, 'cents' => (int) $cents];
    }
}
