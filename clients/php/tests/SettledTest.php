<?php

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Cache;
use Unstale\Invalidation;
use Unstale\Outbox;
use Unstale\Read;
use Unstale\Settled;
use Unstale\Token;
use Unstale\Transaction;

/** Reads of a caller that must see its own writes. */
final class SettledTest extends ReaderTest
{
    private static \PDO $admin;
    private static RedisServer $server;

    public static function setUpBeforeClass(): void
    {
        MySQL::shared()->database('settled');
        self::$admin = MySQL::shared()->connect('settled');
        self::$server = new RedisServer();
    }

    public static function tearDownAfterClass(): void
    {
        self::$admin->exec('DROP DATABASE settled');
        self::$server->stop();
    }

    protected function setUp(): void
    {
        self::$server->admin()->flushAll();
        foreach (['cache_outbox', 'cache_outbox_delayed', 'cache_outbox_dead'] as $table) {
            self::$admin->exec("DELETE FROM $table");
        }
    }

    private static function write(): string
    {
        return (new Outbox())->inTransaction(self::$admin, static function (Transaction $tx): void {
            $tx->enqueue(new Invalidation('product', '42'));
        })->token;
    }

    private static function queries(): int
    {
        return (int) self::$admin->query("SHOW GLOBAL STATUS LIKE 'Com_select'")->fetch(\PDO::FETCH_NUM)[1];
    }

    private static function of(mixed $value): \Closure
    {
        return static fn (): mixed => $value;
    }

    private function open(mixed ...$options): Cache
    {
        return $this->cache(self::$server, ...$options + ['primary' => static fn (): \PDO => MySQL::shared()->connect('settled')]);
    }

    public function testUntilItsRowsAreSettledACallerLoadsAndMayStoreTheValue(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $cache->fetch($read, self::of('old'));
        $token = self::write();
        self::assertSame('loader', $cache->fetchResult($read, self::of('new'), $token)->source);
        self::assertSame('new', $cache->fetch($read, self::unexpected(...)));
        self::assertSame('newer', $cache->fetch($read, self::of('newer'), $token));
        self::assertSame(['k' => 'newest'], $cache->fetchMany([$read], self::of(['k' => 'newest']), $token));
        self::assertSame(3, $cache->stats()['unsettled']);
        self::$admin->exec('DELETE FROM cache_outbox');
        self::assertSame('newest', $cache->fetch($read, self::unexpected(...), $token));
        $queries = self::queries();
        self::assertSame('newest', $cache->fetch($read, self::unexpected(...), $token)); // which is final
        self::assertSame($queries, self::queries());
    }

    public function testItDoesNotWaitForTheLeaseOfAnotherAndGetsNoOldValueForAFailedLoad(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $token = self::write();
        self::$server->admin()->set('lock:fill:{k}', 'other:1', ['px' => 60_000]);
        self::assertSame('mine', $cache->fetch($read, self::of('mine'), $token));
        self::$server->admin()->del('lock:fill:{k}');
        foreach (['s', 'o'] as $name) {
            self::$server->store('k', ['e' => -1000, $name => 60_000, 'v' => 'old']);
            try {
                $cache->fetch($read, static fn () => throw new \RuntimeException('the database is away'), $token);
                self::fail('there is no value');
            } catch (\RuntimeException $e) {
                self::assertSame('the database is away', $e->getMessage());
            }
        }
    }

    public function testAValueThatAnotherStoresBeforeTheLeaseDoesNotCount(): void
    {
        $proxy = $this->proxy(self::$server);
        $cache = $this->cache($proxy, primary: static fn (): \PDO => MySQL::shared()->connect('settled'));
        $proxy->first(self::$server->port, 'lock:hold', 'SET', 'k', '{"e":99999999999999,"v":"old"}');
        self::assertSame('mine', $cache->fetch(new Read('k', 60_000), self::of('mine'), self::write()));
        self::assertSame('mine', self::$server->stored('k')['v']);
    }

    public function testADeadLetterAndAStateThatIsUnknown(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $token = self::write();
        [[$first]] = Token::parse($token)->runs;
        self::$admin->exec('DELETE FROM cache_outbox');
        self::$admin->exec('INSERT INTO cache_outbox_dead (first_id, entity, entity_id, created_at, reason, error, map_version)'
            . " VALUES ($first, 'product', '42', UTC_TIMESTAMP(6), 'lookup_failed', '', '')");
        foreach (['1', '2'] as $value) {
            self::assertSame($value, $cache->fetch($read, self::of($value), $token));
        }
        self::assertSame('a row of the token is a dead letter: lookup_failed', $this->warnings[0][1]['exception']->getMessage());
        self::assertCount(1, $this->warnings);
        $failing = $this->open(primary: static fn () => throw new \RuntimeException('the database is away'));
        self::assertSame('3', $failing->fetch($read, self::of('3'), $token));
        self::assertSame('4', $this->open(primary: null)->fetch($read, self::of('4'), $token));
    }

    public function testATokenThatHasEndedAndATextThatIsNoneAreIgnored(): void
    {
        $cache = $this->open();
        $read = new Read('k', 60_000);
        $cache->fetch($read, self::of('stored'));
        $token = Token::parse(self::write());
        $old = (string) Token::of($token->source, $token->made - Token::LIFETIME - 1, $token->runs);
        foreach ([$old, '', 'no token', "{$token}x"] as $text) {
            self::assertSame('stored', $cache->fetch($read, self::unexpected(...), $text));
        }
    }

    public function testSessionsAndServersWhoseAnswerSaysNothingAreRefused(): void
    {
        $token = Token::parse(self::write());
        $pdo = MySQL::shared()->connect('settled', [\PDO::ATTR_STRINGIFY_FETCHES => true]);
        self::assertFalse(Settled::ask($pdo, $token)->isSettled);
        self::$admin->exec('DELETE FROM cache_outbox');
        $nulls = MySQL::shared()->connect('settled', [\PDO::ATTR_ORACLE_NULLS => \PDO::NULL_EMPTY_STRING]);
        self::assertTrue(Settled::ask($nulls, $token)->isSettled);
        $foreign = Token::of(\str_repeat('0', 32), $token->made, $token->runs);
        self::assertSame('the token belongs to another outbox', Settled::ask($pdo, $foreign)->error);
        self::assertStringContainsString('more than 1000 rows', Settled::ask($pdo, Token::of($token->source, $token->made, [], true))->error);
        $this->refused('in a transaction', static function () use ($pdo, $token): void {
            $pdo->beginTransaction();
            Settled::ask($pdo, $token);
        });
        $pdo->rollBack();
        foreach (['SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED' => 'READ COMMITTED', 'SET autocommit = 0' => 'autocommit'] as $sql => $text) {
            $own = MySQL::shared()->connect('settled');
            $own->exec($sql);
            $this->refused($text, static fn () => Settled::ask($own, $token));
        }
        $silent = MySQL::shared()->connect('mysql', [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_SILENT]);
        $this->refused("doesn't exist", static fn () => Settled::ask($silent, $token));
        self::$admin->exec('SET GLOBAL read_only = 1');
        try {
            $this->refused('read-only', static fn () => Settled::ask($pdo, $token));
        } finally {
            self::$admin->exec('SET GLOBAL read_only = 0');
        }
    }

    private function refused(string $text, callable $call): void
    {
        try {
            $call();
            self::fail("refused: $text");
        } catch (\RuntimeException $e) {
            self::assertStringContainsString($text, $e->getMessage());
        }
    }
}
