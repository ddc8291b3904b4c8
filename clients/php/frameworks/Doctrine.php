<?php

declare(strict_types=1);

namespace Unstale\Frameworks;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Unstale\Doctrine\Outbox;
use Unstale\Invalidation;
use Unstale\Token;
use Unstale\Transaction;

if (\stream_resolve_include_path('Doctrine/DBAL/autoload.php') === false) {
    return null;
}
require_once 'Doctrine/DBAL/autoload.php';

$connect = static function (Site $site, string $driver = 'pdo_mysql'): Connection {
    $connection = DriverManager::getConnection(['driver' => $driver, 'unix_socket' => $site->mysql->socket, 'user' => 'root', 'dbname' => 'shop']);
    if (\method_exists($connection, 'setNestTransactionsWithSavepoints')) {
        $connection->setNestTransactionsWithSavepoints(true); // DBAL 4 always does
    }
    return $connection;
};

return [
    'a row commits with the change' => static function (Site $site) use ($connect): void {
        [$db, $outbox] = [$connect($site), new Outbox()];
        $db->transactional(static function () use ($db, $outbox, $site): void {
            $db->executeStatement('UPDATE products SET price_cents = 200 WHERE id = 1');
            $outbox->enqueue($db, $site->product(), new Invalidation('product', '18446744073709551615'));
            same(['1', '18446744073709551615'], $db->fetchFirstColumn('SELECT entity_id FROM cache_outbox ORDER BY id'));
        });
        same(200, $site->price());
    },
    'a rollback removes the row' => static function (Site $site) use ($connect): void {
        [$db, $outbox] = [$connect($site), new Outbox()];
        throws(\DomainException::class, static fn () => $db->transactional(static function () use ($db, $outbox, $site): void {
            $outbox->enqueue($db, $site->product());
            throw new \DomainException();
        }));
        same(0, $site->rows());
    },
    'a rollback to a savepoint removes its rows, and keeps others' => static function (Site $site) use ($connect): void {
        [$db, $outbox] = [$connect($site), new Outbox()];
        $db->beginTransaction();
        $outbox->enqueue($db, $site->product());
        throws(\DomainException::class, static fn () => $db->transactional(static function () use ($db, $outbox): void {
            $outbox->enqueue($db, new Invalidation('product', 2));
            throw new \DomainException();
        }));
        same(['1'], $db->fetchFirstColumn('SELECT entity_id FROM cache_outbox'));
        $db->commit();
    },
    'without a transaction it throws' => static function (Site $site) use ($connect): void {
        throws(\LogicException::class, static fn () => (new Outbox())->enqueue($connect($site), $site->product()));
    },
    'inTransaction returns the result and the token' => static function (Site $site) use ($connect): void {
        $db = $connect($site);
        $done = (new Outbox())->inTransaction($db, static function (Transaction $tx) use ($db, $site): string {
            $db->executeStatement('UPDATE products SET price_cents = 300 WHERE id = 1');
            $tx->enqueue($site->product());
            return 'x';
        });
        same('x', $done->result);
        same(1, Token::parse($done->token)->runs[0][1]);
        same(300, $site->price());
    },
    'an enqueue whose error is caught rolls back' => static function (Site $site) use ($connect): void {
        $db = $connect($site);
        throws(\Unstale\FieldError::class, static fn () => (new Outbox())->inTransaction($db, static function (Transaction $tx) use ($db): void {
            $db->executeStatement('UPDATE products SET price_cents = 300 WHERE id = 1');
            throws(\Unstale\FieldError::class, static fn () => $tx->enqueue(new Invalidation('product', 1.5)));
        }));
        same(100, $site->price());
    },
    'inside of another transaction there is no token' => static function (Site $site) use ($connect): void {
        [$db, $outbox] = [$connect($site), new Outbox()];
        $outbox->inTransaction($db, static function () use ($db, $outbox, $site): void {
            same('', $outbox->inTransaction($db, static fn (Transaction $tx) => $tx->enqueue($site->product()))->token);
        });
        $site->settle();
    },
    'the code of README.md' => static function (Site $site) use ($connect): void {
        $connection = $connect($site);
        $connection->insert('products', ['id' => 42, 'price_cents' => 4990]);
        require __DIR__ . '/docs-doctrine.php';
        same(1, Token::parse($token)->runs[0][1]);
        same(3990, $site->price(42));
    },
    'mysqli is refused' => static function (Site $site) use ($connect): void {
        if (\extension_loaded('mysqli')) {
            $error = throws(\LogicException::class, static fn () => (new Outbox())->enqueue($connect($site, 'mysqli'), $site->product()));
            same('unstale needs the driver pdo_mysql, and this is mysqli', $error->getMessage());
        }
    },
];
