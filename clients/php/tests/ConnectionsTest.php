<?php

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Connections;
use Unstale\Read;

/** What URLs and functions of connections lead to. */
final class ConnectionsTest extends ReaderTest
{
    private static RedisServer $server;

    public static function setUpBeforeClass(): void
    {
        self::$server = new RedisServer('--unixsocket', 'socket');
    }

    public static function tearDownAfterClass(): void
    {
        self::$server->stop();
    }

    private function database(Connections $connections): string
    {
        \preg_match('/ db=(\d+)/', $connections->open(2, false)->rawCommand('CLIENT', 'INFO'), $found);
        return $found[1];
    }

    /** @return list<array{string, string}> */
    public static function databases(): array
    {
        return [['', '0'], ['/', '0'], ['/3', '3'], ['?db=3', '3'], ['/?db=3', '3'], ['?%64b=%33&', '3'], ['/3?skip_verify=false', '3']];
    }

    /** @dataProvider databases */
    public function testTheDatabaseIsThatOfTheWorker(string $tail, string $want): void
    {
        self::assertSame($want, $this->database(Connections::url(self::$server->url() . $tail)));
    }

    public function testTheDatabaseOfASocketIsInTheQuery(): void
    {
        self::assertSame('3', $this->database(Connections::url('unix://' . self::$server->folder . '/socket?db=3')));
    }

    public function testAPooledConnectionOfTheApplicationIsInTheDatabaseOfTheURL(): void
    {
        $application = new \Redis();
        $application->pconnect('127.0.0.1', self::$server->port);
        $application->select(3);
        unset($application);
        self::assertSame('0', $this->database(Connections::url(self::$server->url(), true)));
    }

    /** @return list<array{string, string}> */
    public static function refused(): array
    {
        return [
            ['/abc', 'path'], ['/3x', 'path'], ['/-1', 'path'], ['/3/4', 'path'], ['//3', 'path'], ['/%33', 'path'], ['/w@h', 'path'],
            ['?db=', 'database'], ['?db=-1', 'database'], ['?db=+3', 'database'], ['?db=2147483648', 'database'],
            ['/99999999999999999999', 'database'], ['?db', 'database'], ['/3?db=3', 'twice'], ['?db=1&db=1', 'db twice'],
            ['?DB=3', 'unknown option'], ['?timeout=1', 'unknown option'], ['/3#x', '#'],
            ['?skip_verify=yes', 'skip_verify must be'], ['?skip_verify=1', 'TLS is off'],
        ];
    }

    /** @dataProvider refused */
    public function testOtherPartsOfAURLAreRefused(string $tail, string $part): void
    {
        $urls = [
            static fn () => Connections::url("redis://u:secret@h$tail"),
            static fn () => Connections::sentinel(['redis://h'], 'shop', "redis://u:secret@h$tail"),
            static fn () => Connections::sentinel(["redis://u:secret@h$tail"], 'shop'),
        ];
        foreach ($urls as $call) {
            try {
                $call();
                self::fail('it is accepted');
            } catch (\ValueError $e) {
                self::assertStringContainsString($part, $e->getMessage());
                self::assertStringNotContainsString('secret', $e->getMessage());
            }
        }
    }

    public function testADatabaseIsRefusedWhereItMeansNothing(): void
    {
        $calls = [
            static fn () => Connections::sentinel(['redis://h/3'], 'shop'),
            static fn () => Connections::cluster(['h:6379/3']),
            static fn () => Connections::cluster(['redis://h:6379?db=3']),
        ];
        foreach ($calls as $call) {
            try {
                $call();
                self::fail('it is accepted');
            } catch (\ValueError $e) {
                self::assertStringContainsString('database', $e->getMessage());
            }
        }
    }

    public function testAFunctionWhoseConnectionIsNotReady(): void
    {
        $cache = $this->cache(new Connections(static fn (): \Redis => new \Redis()));
        foreach ([1, 2] as $value) {
            self::assertSame($value, $cache->fetch(new Read('k', 60_000), static fn (): int => $value));
        }
        self::assertStringContainsString('not connected', $cache->healthy()->getMessage());
        $multi = new Connections(static function (): \Redis {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', self::$server->port);
            $redis->multi();
            return $redis;
        });
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('is in multi()');
        $this->cache($multi)->fetch(new Read('k', 60_000), static fn (): int => 1);
    }

    public function testTLSThatFailsHasAReasonUnlessItIsNotVerified(): void
    {
        [$port, $folder] = [RedisServer::freePort(), self::$server->folder];
        \exec("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=x -keyout $folder/key.pem -out $folder/cert.pem 2>/dev/null");
        self::$server->admin()->rawCommand('CONFIG', 'SET', 'tls-cert-file', "$folder/cert.pem", 'tls-key-file', "$folder/key.pem", 'tls-ca-cert-file', "$folder/cert.pem", 'tls-auth-clients', 'no', 'tls-port', $port);
        self::assertSame('2', $this->database(Connections::url("rediss://127.0.0.1:$port/2?skip_verify=True")));
        $this->expectExceptionMessage('certificate verify failed');
        Connections::url("rediss://127.0.0.1:$port/2")->open(2, false);
    }

    public function testADumpHasNoPassword(): void
    {
        $dump = \print_r($this->cache(Connections::url('redis://:secret@h')), true);
        self::assertStringContainsString('Connections Object', $dump);
        self::assertStringNotContainsString('secret', $dump);
    }
}
