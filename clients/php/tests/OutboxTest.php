<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;
use Unstale\CommitError;
use Unstale\FieldError;
use Unstale\Invalidation;
use Unstale\Outbox;
use Unstale\Token;
use Unstale\Transaction;

final class OutboxTest extends TestCase
{
    private static \PDO $admin;

    private \PDO $pdo;

    private Outbox $outbox;

    public static function setUpBeforeClass(): void
    {
        MySQL::shared()->database('shop');
        self::$admin = MySQL::shared()->connect();
        self::$admin->exec('CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0)');
        self::$admin->exec('INSERT INTO stock (id) VALUES (1), (2)');
    }

    public static function tearDownAfterClass(): void
    {
        self::$admin->exec('DROP DATABASE shop');
    }

    protected function setUp(): void
    {
        $this->outbox = new Outbox();
        $this->pdo = MySQL::shared()->connect();
    }

    protected function tearDown(): void
    {
        unset($this->pdo);
        self::$admin->exec('DELETE FROM cache_outbox');
        self::$admin->exec('DELETE FROM cache_outbox_delayed');
        self::$admin->exec('UPDATE stock SET n = 0');
    }

    /** @return list<array<string, mixed>> */
    private static function rows(string $columns = 'entity_id', string $table = 'cache_outbox'): array
    {
        return self::$admin->query("SELECT $columns FROM $table ORDER BY id")->fetchAll(\PDO::FETCH_ASSOC);
    }

    /** @return list<string> */
    private static function ids(): array
    {
        return \array_column(self::rows(), 'entity_id');
    }

    private static function product(int|string $id = 42): Invalidation
    {
        return new Invalidation('product', $id);
    }

    private function enqueue(Invalidation ...$invalidations): void
    {
        $this->pdo->inTransaction() || $this->pdo->beginTransaction();
        $this->outbox->enqueue($this->pdo, ...$invalidations);
        $this->pdo->commit();
    }

    /** @return array<string, array{array<string, mixed>}> */
    public static function cases(): array
    {
        return Conformance::cases('rows');
    }

    /**
     * @dataProvider cases
     *
     * @param array<string, mixed> $case
     */
    public function testRowsOfTheProtocol(array $case): void
    {
        [$entity, $id, $params, $trace] = \array_map(
            static fn (string $field): string => Conformance::bytes($case[$field]),
            ['entity', 'id', 'params', 'trace'],
        );
        $row = new Invalidation($entity, $id, rawParams: $params, required: $case['required'] ?? [], trace: $trace);
        if (isset($case['field'])) {
            try {
                $this->enqueue($row);
                self::fail('the row is not refused');
            } catch (FieldError $error) {
                self::assertSame([$case['field'], $case['problem'], 0], [$error->field, $error->problem, $error->index]);
            }
            self::assertSame([], self::rows());
            return;
        }
        $this->enqueue($row);
        $want = ['entity' => $entity, 'entity_id' => $id, 'params' => $params, 'trace' => $trace];
        self::assertSame([$want], self::rows("entity, entity_id, COALESCE(params, '') AS params, trace"));
    }

    public function testEnqueueCommitsAndRollsBackWithTheTransactionOfTheCaller(): void
    {
        $this->pdo->beginTransaction();
        $this->outbox->enqueue($this->pdo, self::product(), new Invalidation('coupon', 'SUMMER'));
        self::assertSame([], self::rows());
        $this->pdo->commit();
        self::assertSame([
            ['entity' => 'product', 'entity_id' => '42', 'params' => null, 'trace' => ''],
            ['entity' => 'coupon', 'entity_id' => 'SUMMER', 'params' => null, 'trace' => ''],
        ], self::rows('entity, entity_id, params, trace'));
        $this->pdo->beginTransaction();
        $this->outbox->enqueue($this->pdo, self::product());
        $this->pdo->rollBack();
        self::assertCount(2, self::rows());
        $this->outbox->enqueue($this->pdo);
        self::assertCount(2, self::rows());
    }

    public function testTheRowGoesWithARollbackToASavepoint(): void
    {
        $this->pdo->beginTransaction();
        $this->outbox->enqueue($this->pdo, self::product(1));
        $this->pdo->exec('SAVEPOINT inner_1');
        $this->outbox->enqueue($this->pdo, self::product(2));
        $this->pdo->exec('ROLLBACK TO SAVEPOINT inner_1');
        $this->outbox->enqueue($this->pdo, self::product(3));
        $this->pdo->commit();
        self::assertSame(['1', '3'], self::ids());
    }

    public function testWithoutATransactionNothingIsWritten(): void
    {
        $refused = function (): void {
            try {
                $this->outbox->enqueue($this->pdo, self::product());
                self::fail('enqueue is not refused');
            } catch (\LogicException $error) {
                self::assertStringContainsString('call beginTransaction() before the change', $error->getMessage());
            }
        };
        $refused();
        $this->pdo->beginTransaction();
        $this->pdo->exec('CREATE TABLE implicit_commit (id INT)');
        $refused();
        self::assertSame([], self::rows());
        self::$admin->exec('DROP TABLE implicit_commit');

        $this->pdo->exec('START TRANSACTION');
        $this->outbox->enqueue($this->pdo, self::product());
        $this->pdo->exec('COMMIT');
        $refused();
        self::assertSame(['42'], self::ids());
    }

    public function testAConnectionWithoutAutocommitAlwaysHasATransaction(): void
    {
        $this->pdo->setAttribute(\PDO::ATTR_AUTOCOMMIT, 0);
        $this->outbox->enqueue($this->pdo, self::product());
        self::assertSame([], self::rows());
        $this->pdo->exec('COMMIT');
        self::assertSame(['42'], self::ids());
    }

    /** @return array<string, array{array<int, mixed>, 1?: string, 2?: string}> */
    public static function connections(): array
    {
        return [
            'emulated prepares' => [[\PDO::ATTR_EMULATE_PREPARES => true]],
            'native prepares' => [[\PDO::ATTR_EMULATE_PREPARES => false]],
            'emulated prepares, without backslash escapes' => [[\PDO::ATTR_EMULATE_PREPARES => true], 'utf8mb4',
                "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')"],
            'emulated prepares in latin1' => [[\PDO::ATTR_EMULATE_PREPARES => true], 'latin1'],
            'native prepares in latin1' => [[\PDO::ATTR_EMULATE_PREPARES => false], 'latin1'],
            'emulated prepares in utf8mb3' => [[\PDO::ATTR_EMULATE_PREPARES => true], 'utf8'],
            'native prepares in utf8mb3' => [[\PDO::ATTR_EMULATE_PREPARES => false], 'utf8'],
            'national strings' => [[\PDO::ATTR_DEFAULT_STR_PARAM => \PDO::PARAM_STR_NATL]],
            'other settings' => [[
                \PDO::ATTR_STRINGIFY_FETCHES => true, \PDO::ATTR_CASE => \PDO::CASE_UPPER,
                \PDO::ATTR_DEFAULT_FETCH_MODE => \PDO::FETCH_OBJ, \PDO::MYSQL_ATTR_USE_BUFFERED_QUERY => false,
            ]],
        ];
    }

    /**
     * @dataProvider connections
     *
     * @param array<int, mixed> $options
     */
    public function testTextIsExact(array $options, string $charset = 'utf8mb4', string $setup = 'DO 0'): void
    {
        $ids = [
            0, -7, \PHP_INT_MAX, \PHP_INT_MIN, '18446744073709551615', '9007199254740993', '007', '1e5', '0x10',
            "it's \\ \"", "\0", ' 42 ', "é🛒\n", "'); DROP TABLE stock; --", '?', ':id',
        ];
        $pdo = MySQL::shared()->connect('shop', $options, $charset);
        $pdo->exec($setup);
        $done = $this->outbox->inTransaction($pdo, static function (Transaction $tx) use ($ids): void {
            foreach ($ids as $id) {
                $tx->enqueue(new Invalidation('product', $id, ['a' => "é🛒\\'"], trace: 'é🛒'));
            }
        });
        self::assertSame(\array_map(strval(...), $ids), self::ids());
        self::assertSame(['{"a":"é🛒\\\\\'"}'], \array_unique(\array_column(self::rows('params'), 'params')));
        self::assertSame(['é🛒'], \array_unique(\array_column(self::rows('trace'), 'trace')));
        self::assertSame(\count($ids), Token::parse($done->token)->runs[0][1]);
    }

    /** @return iterable<string, array{string, mixed}> */
    public static function notIDs(): iterable
    {
        yield 'a float' => ['a float is not an ID; pass text or an integer', 1.5];
        yield 'an ID that PHP has turned into a float' => ['a float is not an ID; pass text or an integer', 18446744073709551615];
        yield 'true' => ['a boolean is not an ID; pass text or an integer', true];
        yield 'null' => ['null is not an ID; pass text or an integer', null];
        yield 'a list' => ['a list is not an ID; pass text or an integer', [1]];
        yield 'an object' => ['an object of ArrayObject is not an ID; pass text or an integer', new \ArrayObject()];
    }

    /** @dataProvider notIDs */
    public function testRefusesOtherIDs(string $problem, mixed $id): void
    {
        $this->expectExceptionObject(new FieldError('id', $problem, 1));
        $this->enqueue(self::product(), new Invalidation('product', $id));
    }

    /** @return list<array{string|null, array<string, mixed>}> */
    public static function params(): array
    {
        return [
            ['{"a":1,"b":"x","c":true,"d":1.5,"e":[7,"9"]}', ['params' => ['e' => [7, '9'], 'd' => 1.5, 'c' => true, 'b' => 'x', 'a' => 1]]],
            ['{"n":18446744073709551615}', ['rawParams' => '{"n":18446744073709551615}']],
            [null, ['params' => []]],
            ['{"a":0.1,"b":[2,1.0e-7]}', ['params' => ['a' => 0.1, 'b' => [2.0, 1e-7]]]],
            ['{"a":"<é🛒>/\\u0000\\n"}', ['params' => ['a' => "<é🛒>/\0\n"]]],
            ['{"10":1,"9":2}', ['params' => ['9' => 2, '10' => 1]]],
            ['{"a":9007199254740993,"b":[7,9]}', ['params' => ['a' => '9007199254740993', 'b' => ['7', 9]], 'types' => ['a' => 'int', 'b' => 'int']]],
            ['{"u":"0af76519-16cd-43dd-8448-eb211c80319c"}', ['params' => ['u' => '0AF76519-16CD-43DD-8448-EB211C80319C'], 'types' => ['u' => 'uuid']]],
            ['{"category_id":[]}', ['params' => ['category_id' => []], 'required' => ['category_id']]],
        ];
    }

    /**
     * @dataProvider params
     *
     * @param array<string, mixed> $part
     */
    public function testWritesParameters(?string $want, array $part): void
    {
        $precision = \ini_set('serialize_precision', '17');
        $this->enqueue(new Invalidation('product', 42, ...$part));
        \ini_set('serialize_precision', $precision);
        self::assertSame($want, self::rows('params')[0]['params']);
    }

    /** @return list<array{string, array<string, mixed>}> */
    public static function refused(): array
    {
        $neither = ' is neither a scalar nor a list of scalars; pass text, a number, a boolean or a list of these';
        return [
            ['params.a: is null; leave it out', ['params' => ['a' => null]]],
            ['params.a: element 1: is null; leave it out', ['params' => ['a' => [1, null]]]],
            ["params.a: element 0: a list$neither", ['params' => ['a' => [[1]]]]],
            ["params.a: an array with keys$neither", ['params' => ['a' => ['x' => 1]]]],
            ["params.a: an object of DateTimeImmutable$neither", ['params' => ['a' => new \DateTimeImmutable()]]],
            ['params.a: NAN is not a number that JSON can represent', ['params' => ['a' => \NAN]]],
            ['params.a: INF is not a number that JSON can represent', ['params' => ['a' => \INF]]],
            ['params.a: 9007199254740992 is beyond 2^53, where floats are not exact; pass an integer or text', ['params' => ['a' => 2.0 ** 53]]],
            ['params.a: "\\xff" is not valid UTF-8', ['params' => ['a' => "\xff"]]],
            ['params: the name "\\xff" is not valid UTF-8', ['params' => ["\xff" => 1]]],
            ['params: a parameter has an empty name', ['params' => ['' => 1]]],
            ['params: params and rawParams are both set; set one', ['params' => ['a' => 1], 'rawParams' => '{}']],
            ['params: 65544 bytes of JSON are more than 65536; pass ids, not documents', ['params' => ['a' => \str_repeat('x', 65536)]]],
            ['params: 65537 bytes of JSON are more than 65536; pass ids, not documents', ['rawParams' => \str_repeat('x', 65537)]],
            ['params.a: is missing; the map requires it', ['required' => ['a']]],
            ['params.a: is missing; the map requires it', ['params' => ['a' => null], 'required' => ['a']]],
            ['params.b: is not an optional parameter of product in the map', ['params' => ['b' => 1], 'unknown' => 'b']],
            ['params.a: "1.5" is not an integer of 64 bits, as in the map', ['params' => ['a' => 1.5], 'types' => ['a' => 'int']]],
            ['params.a: element 1: "042" is not an integer of 64 bits, as in the map', ['params' => ['a' => [1, '042']], 'types' => ['a' => 'int']]],
            ['params.a: "true" is not an integer of 64 bits, as in the map', ['params' => ['a' => true], 'types' => ['a' => 'int']]],
            ['id: "1e5" is not an integer of 64 bits, as in the map', ['id' => '1e5', 'types' => ['id' => 'int']]],
            ['id: "9223372036854775808" is not an integer of 64 bits, as in the map', ['id' => '9223372036854775808', 'types' => ['id' => 'int']]],
            ['id: "x" is not a UUID, as in the map', ['id' => 'x', 'types' => ['id' => 'uuid']]],
            ['id: is empty; it is required', ['id' => '', 'types' => ['id' => 'int']]],
            ['entity: "a\\xff" is not valid UTF-8', ['entity' => "a\xff"]],
            ['trace: "\\xed\\xa0\\x80" is not valid UTF-8', ['trace' => "\xed\xa0\x80"]],
            ['not_before: year 1969 is outside 1970 to 9999', ['notBefore' => new \DateTimeImmutable('@-1')]],
            ['not_before: year 10000 is outside 1970 to 9999', ['notBefore' => new \DateTimeImmutable('@253402300800')]],
        ];
    }

    /**
     * @dataProvider refused
     *
     * @param array<string, mixed> $part
     */
    public function testRefuses(string $problem, array $part): void
    {
        [$field, $problem] = \explode(': ', $problem, 2);
        try {
            $this->enqueue(self::product(), new Invalidation(...$part + ['entity' => 'product', 'id' => 42]));
            self::fail('the row is not refused');
        } catch (FieldError $error) {
            self::assertEquals([$field, $problem, 1], [$error->field, $error->problem, $error->index]);
        }
        self::assertSame([], self::rows());
    }

    public function testADelayedRowIsDueInUTCInAnyTimeZone(): void
    {
        $this->pdo->exec("SET time_zone = '+05:00'");
        $due = new \DateTime('2031-02-03T06:05:06.789+02:00');
        $this->enqueue(self::product()->withNotBefore($due), self::product(7));
        self::assertSame(['7'], self::ids());
        $want = [['entity_id' => '42', 'due' => '2031-02-03 04:05:06.789000']];
        self::assertSame($want, self::rows('entity_id, CAST(due_at AS CHAR) AS due', 'cache_outbox_delayed'));
    }

    public function testATraceIsTheRowsOwn(): void
    {
        $trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
        $this->enqueue(self::product()->withTrace($trace), self::product());
        self::assertSame([$trace, ''], \array_column(self::rows('trace'), 'trace'));
    }

    public function testManyRowsBecomeStatementsOfAtMost500RowsAndAbout1MiB(): void
    {
        $count = fn (): int => (int) $this->pdo->query("SHOW SESSION STATUS LIKE 'Com_insert'")->fetchColumn(1);
        $before = $count();
        $this->enqueue(...\array_map(self::product(...), \range(0, 1200)));
        self::assertSame(3, $count() - $before);
        self::assertSame(\array_map(strval(...), \range(0, 1200)), self::ids());
        $before = $count();
        $large = new Invalidation('product', 1, rawParams: '{"a":"' . \str_repeat('é', 30_000) . '"}');
        $this->enqueue(...\array_fill(0, 40, $large));
        self::assertSame(3, $count() - $before);
    }

    /** @return list<array{int}> */
    public static function errorModes(): array
    {
        return [[\PDO::ERRMODE_SILENT], [\PDO::ERRMODE_WARNING], [\PDO::ERRMODE_EXCEPTION]];
    }

    /** @dataProvider errorModes */
    public function testAnErrorOfTheDatabaseIsAnExceptionInAllModes(int $mode): void
    {
        $this->pdo->setAttribute(\PDO::ATTR_ERRMODE, $mode);
        $this->enqueue(self::product());
        self::$admin->exec('RENAME TABLE cache_outbox TO elsewhere');
        try {
            $this->pdo->beginTransaction();
            $this->outbox->enqueue($this->pdo, self::product());
            self::fail('enqueue does not fail');
        } catch (\PDOException $error) {
            self::assertSame(1146, $error->errorInfo[1]);
        } finally {
            self::$admin->exec('RENAME TABLE elsewhere TO cache_outbox');
        }
        self::assertSame($mode, $this->pdo->getAttribute(\PDO::ATTR_ERRMODE));
    }

    /** Ends a statement with an error of the server. */
    private static function signal(\PDO $pdo, int $number, string $text = ''): void
    {
        $pdo->exec("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = $number, MESSAGE_TEXT = '$text'");
    }

    public function testInTransactionCommitsAndReturnsTheResultAndTheToken(): void
    {
        $done = $this->outbox->inTransaction($this->pdo, static function (Transaction $tx): string {
            $tx->pdo->exec('UPDATE stock SET n = 1 WHERE id = 1');
            $tx->enqueue(self::product(), self::product());
            $tx->enqueue(self::product()->withNotBefore(new \DateTimeImmutable('+1 hour')));
            $tx->enqueue(self::product());
            return 'done';
        });
        self::assertSame('done', $done->result);
        $token = Token::parse($done->token);
        $server = self::$admin->query('SELECT id, UNIX_TIMESTAMP() AS now FROM cache_outbox_source')->fetch();
        self::assertSame($server['id'], $token->source);
        self::assertLessThan(5, $server['now'] - $token->made);
        self::assertSame([[self::rows('id')[0]['id'], 3, 1]], $token->runs);
        self::assertSame(['n' => 1], self::rows('n', 'stock')[0]);
        $row = self::$admin->query($token->query())->fetch(\PDO::FETCH_NUM);
        self::assertSame([$server['id'], 1, 1, 0, 0, ''], \array_slice($row, 5));
    }

    public function testATokenHasTheIDsOfAllStatementsAlsoWithAnIncrement(): void
    {
        foreach ([true, false] as $emulated) {
            $pdo = MySQL::shared()->connect('shop', [\PDO::ATTR_EMULATE_PREPARES => $emulated]);
            $pdo->exec('SET SESSION auto_increment_increment = 7');
            $three = static fn (Transaction $tx) => $tx->enqueue(self::product(), self::product(), self::product());
            $token = Token::parse($this->outbox->inTransaction($pdo, $three)->token);
            $ids = \array_column(self::rows('id'), 'id');
            self::assertSame([[$ids[0], 3, 7]], $token->runs);
            self::assertSame(14, $ids[2] - $ids[0]);
            self::$admin->exec('DELETE FROM cache_outbox');
        }
        $many = \array_fill(0, 1001, self::product());
        $done = $this->outbox->inTransaction($this->pdo, static fn (Transaction $tx) => $tx->enqueue(...$many));
        self::assertTrue(Token::parse($done->token)->many);
    }

    public function testWithoutRowsTheTokenIsEmptyAndNeedsNoPrivilege(): void
    {
        self::$admin->exec('RENAME TABLE cache_outbox_source TO elsewhere');
        try {
            $done = $this->outbox->inTransaction($this->pdo, static fn (): int => 7);
            self::assertSame([7, ''], [$done->result, $done->token]);
            $later = self::product()->withNotBefore(new \DateTimeImmutable());
            $done = $this->outbox->inTransaction($this->pdo, static fn (Transaction $tx) => $tx->enqueue($later));
            self::assertSame('', $done->token);
            $this->enqueue(self::product());
            $this->expectExceptionMessage('unstale migrate up makes it');
            $this->outbox->inTransaction($this->pdo, static fn (Transaction $tx) => $tx->enqueue(self::product()));
        } finally {
            self::$admin->exec('RENAME TABLE elsewhere TO cache_outbox_source');
        }
    }

    public function testSeveralShardsAreRefused(): void
    {
        self::$admin->exec('RENAME TABLE cache_outbox_source TO elsewhere');
        self::$admin->exec('CREATE VIEW cache_outbox_source AS SELECT one, id FROM elsewhere'
            . ' CROSS JOIN (SELECT 1 UNION SELECT 2) AS shards');
        try {
            $this->expectExceptionMessage('cache_outbox_source has 2 rows, as in a keyspace with several shards');
            $this->outbox->inTransaction($this->pdo, static fn (Transaction $tx) => $tx->enqueue(self::product()));
        } finally {
            self::$admin->exec('DROP VIEW cache_outbox_source');
            self::$admin->exec('RENAME TABLE elsewhere TO cache_outbox_source');
        }
    }

    public function testItRollsBackIfTheFunctionThrows(): void
    {
        $error = new \TypeError('sold out');
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use ($error): void {
                $tx->enqueue(self::product());
                throw $error;
            });
            self::fail('it does not throw');
        } catch (\TypeError $thrown) {
            self::assertSame($error, $thrown);
        }
        self::assertSame([], self::rows());
        self::assertFalse($this->pdo->inTransaction());
    }

    public function testItRollsBackIfAnEnqueueHasFailedAlsoIfTheExceptionIsCaught(): void
    {
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx): void {
                $tx->enqueue(self::product());
                try {
                    $tx->enqueue(self::product(''));
                } catch (FieldError) {
                }
            });
            self::fail('it does not throw');
        } catch (FieldError $error) {
            self::assertSame('id', $error->field);
        }
        self::assertSame([], self::rows());
        self::assertFalse($this->pdo->inTransaction());
    }

    public function testRefusesAnEnqueueAfterTheEndAndATransactionWithinOne(): void
    {
        $late = $this->outbox->inTransaction($this->pdo, function (Transaction $tx): Transaction {
            try {
                $this->outbox->inTransaction($tx->pdo, static fn (): int => 1);
                self::fail('it does not throw');
            } catch (\LogicException $error) {
                self::assertStringContainsString('the connection already has one', $error->getMessage());
            }
            $tx->enqueue(self::product());
            return $tx;
        })->result;
        self::assertSame(['42'], self::ids());
        $this->expectExceptionMessage('enqueue: the transaction has ended');
        $late->enqueue(self::product());
    }

    public function testAFunctionThatEndsTheTransactionIsRefused(): void
    {
        $this->expectExceptionMessage('the function has ended it');
        try {
            $this->outbox->inTransaction($this->pdo, static fn (Transaction $tx) => $tx->pdo->exec('DROP TABLE IF EXISTS x'));
        } finally {
            self::assertFalse($this->pdo->inTransaction());
        }
    }

    /** @return list<array{string, string}> */
    public static function replaced(): array
    {
        $begin = 'START TRANSACTION';
        $off = 'SET autocommit = 0';
        return [[$off, 'ROLLBACK'], [$off, 'DROP TABLE IF EXISTS x'], ['DO 0', "DROP TABLE IF EXISTS x; $begin"], ['DO 0', "ROLLBACK; $begin"]];
    }

    /** @dataProvider replaced */
    public function testATransactionThatHasReplacedItIsNotCommitted(string $setup, string $statements): void
    {
        $this->pdo->exec($setup);
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use ($statements): void {
                \array_map($tx->pdo->exec(...), \explode('; ', $statements));
                $tx->pdo->exec('UPDATE stock SET n = 7 WHERE id = 2');
                $tx->enqueue(self::product());
            });
            self::fail('it does not throw');
        } catch (\LogicException $error) {
            self::assertStringContainsString('the function has ended it', $error->getMessage());
        }
        self::assertSame([[], ['n' => 0]], [self::rows(), self::rows('n', 'stock')[1]]);
        self::assertFalse($this->pdo->inTransaction());
    }

    public function testOtherErrorModesAreRefusedSinceTheyHideADeadlock(): void
    {
        $this->pdo->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_SILENT);
        $this->expectExceptionMessage('set PDO::ATTR_ERRMODE to PDO::ERRMODE_EXCEPTION');
        $this->outbox->inTransaction($this->pdo, static fn (): int => 1);
    }

    /**
     * Makes the first update of row 2 a deadlock, whose victim is the caller, since the other
     * transaction has changed more.
     */
    private function deadlock(): \mysqli
    {
        self::$admin->exec('CREATE TABLE IF NOT EXISTS heavy (id INT AUTO_INCREMENT PRIMARY KEY)');
        $other = MySQL::shared()->mysqli();
        $other->query('START TRANSACTION');
        $other->query('INSERT INTO heavy VALUES ' . \implode(',', \array_fill(0, 1000, '(NULL)')));
        $other->query('UPDATE stock SET n = n + 1 WHERE id = 2');
        return $other;
    }

    public function testRepeatsADeadlock(): void
    {
        $other = $this->deadlock();
        $attempts = 0;
        $done = $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use ($other, &$attempts): void {
            $attempts++;
            if ($attempts === 2) {
                $other->reap_async_query();
                $other->query('COMMIT');
            }
            $tx->pdo->exec('UPDATE stock SET n = n + 1 WHERE id = 1');
            $tx->enqueue(new Invalidation('stock', $attempts));
            if ($attempts === 1) {
                $other->query('UPDATE stock SET n = n + 1 WHERE id = 1', \MYSQLI_ASYNC);
            }
            $tx->pdo->exec('UPDATE stock SET n = n + 1 WHERE id = 2');
        });
        self::assertSame(2, $attempts);
        self::assertSame(['2'], self::ids());
        self::assertSame(self::rows('id')[0]['id'], Token::parse($done->token)->runs[0][0]);
        self::assertSame([['n' => 2], ['n' => 2]], self::rows('n', 'stock'));
    }

    /**
     * @testWith ["autocommit = 1", "its transaction has ended"]
     *           ["autocommit = 0", "has caught a deadlock"]
     */
    public function testADeadlockThatTheFunctionCatchesIsNoticed(string $setup, string $text): void
    {
        $other = $this->deadlock();
        $this->pdo->exec("SET $setup");
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use ($other): void {
                $tx->pdo->exec('UPDATE stock SET n = 7 WHERE id = 1');
                $other->query('UPDATE stock SET n = n + 1 WHERE id = 1', \MYSQLI_ASYNC);
                try {
                    $tx->pdo->exec('UPDATE stock SET n = 7 WHERE id = 2');
                } catch (\PDOException) {
                }
                $tx->enqueue(self::product());
            });
            self::fail('it does not throw');
        } catch (\LogicException $error) {
            self::assertStringContainsString($text, $error->getMessage());
        } finally {
            $other->reap_async_query();
            $other->query('COMMIT');
        }
        self::assertSame([['n' => 1], ['n' => 1]], self::rows('n', 'stock'));
    }

    /** @return list<array{int}> */
    public static function contention(): array
    {
        return [[1213], [1205], [1020], [3101]];
    }

    /** @dataProvider contention */
    public function testRepeatsItFiveTimesInTotalAlsoIfItIsThePreviousException(int $number): void
    {
        $attempts = 0;
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use ($number, &$attempts): void {
                $attempts++;
                $tx->enqueue(self::product());
                try {
                    self::signal($tx->pdo, $number);
                } catch (\PDOException $error) {
                    throw $attempts % 2 === 0 ? $error : new \RuntimeException('query failed', 0, $error);
                }
            });
            self::fail('it does not throw');
        } catch (\RuntimeException $error) {
            self::assertSame('query failed', $error->getMessage());
        }
        self::assertSame(5, $attempts);
        self::assertSame([], self::rows());
    }

    public function testDoesNotRepeatOtherErrors(): void
    {
        $attempts = 0;
        $this->expectException(\PDOException::class);
        try {
            $this->outbox->inTransaction($this->pdo, static function (Transaction $tx) use (&$attempts): void {
                $attempts++;
                self::signal($tx->pdo, 1062);
            });
        } finally {
            self::assertSame(1, $attempts);
        }
    }

    /** Returns a connection whose first COMMIT is an error of the server. */
    private static function refusingCommit(int $number, string $text): \PDO
    {
        return new class (MySQL::shared()->dsn(), $number, $text) extends \PDO {
            private bool $refused = false;

            public function __construct(string $dsn, private int $number, private string $text)
            {
                parent::__construct($dsn, 'root');
            }

            public function commit(): bool
            {
                if (!$this->refused) {
                    $this->refused = true;
                    $this->exec("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = $this->number, MESSAGE_TEXT = '$this->text'");
                }
                return parent::commit();
            }
        };
    }

    /** @return list<array{int, string}> */
    public static function rolledBack(): array
    {
        return [[1213, ''], [3101, ''], [1180, 'Got error 149 during COMMIT']];
    }

    /** @dataProvider rolledBack */
    public function testRepeatsACommitThatIsRolledBack(int $number, string $text): void
    {
        $pdo = self::refusingCommit($number, $text);
        $done = $this->outbox->inTransaction($pdo, static fn (Transaction $tx) => $tx->enqueue(self::product()));
        self::assertSame([[self::rows('id')[0]['id'], 1, 1]], Token::parse($done->token)->runs);
        self::assertCount(1, self::rows());
    }

    /** @return list<array{int}> */
    public static function uncertain(): array
    {
        return [[1205], [3100], [1180]];
    }

    /** @dataProvider uncertain */
    public function testDoesNotRepeatACommitThatMayHaveBeenDone(int $number): void
    {
        $attempts = 0;
        try {
            $pdo = self::refusingCommit($number, 'Got error 28');
            $this->outbox->inTransaction($pdo, static function (Transaction $tx) use (&$attempts): void {
                $attempts++;
                $tx->enqueue(self::product());
            });
            self::fail('it does not throw');
        } catch (CommitError $error) {
            self::assertStringContainsString('commit transaction: ', $error->getMessage());
            self::assertStringContainsString('Got error 28', $error->getMessage());
            self::assertSame(1, Token::parse($error->token)->runs[0][1]);
        }
        self::assertSame(1, $attempts);
        self::assertSame([], self::rows());
    }

    public function testAConnectionThatIsLostBeforeCommitIsNoCommitError(): void
    {
        $this->expectException(\PDOException::class);
        $this->outbox->inTransaction($this->pdo, static function (Transaction $tx): void {
            $tx->enqueue(self::product());
            self::$admin->exec('KILL ' . $tx->pdo->query('SELECT CONNECTION_ID()')->fetchColumn());
        });
    }

    public function testTheTimeOfATokenIsThatOfTheCommit(): void
    {
        $done = $this->outbox->inTransaction($this->pdo, static function (Transaction $tx): void {
            $tx->enqueue(self::product());
            $tx->pdo->query('SELECT SLEEP(1.1)')->fetchAll();
        });
        $now = self::$admin->query('SELECT UNIX_TIMESTAMP()')->fetchColumn();
        self::assertLessThanOrEqual(1, $now - Token::parse($done->token)->made);
    }

    public function testCollectsTheRowsOfAnyTransaction(): void
    {
        $this->pdo->beginTransaction();
        $writes = $this->outbox->collect($this->pdo);
        self::assertSame('', $writes->token());
        $writes->enqueue(self::product());
        $writes->enqueue(self::product());
        $this->pdo->commit();
        self::assertSame(2, Token::parse($writes->token())->runs[0][1]);
    }
}
