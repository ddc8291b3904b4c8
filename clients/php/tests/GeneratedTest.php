<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;
use Unstale\FieldError;
use Unstale\Invalidation;
use Unstale\ReadMap;
use Unstale\Row;
use Unstale\Tests\Generated\All;
use Unstale\Tests\Generated\Names;
use Unstale\Tests\Generated\ShopCache;
use Unstale\Tests\Generated\Words;

final class GeneratedTest extends TestCase
{
    private const ROOT = __DIR__ . '/../../../';

    protected function setUp(): void
    {
        foreach ([ShopCache::map(), All::map(), Words::map()] as $map) {
            $map->use(['APP_ENV' => 'dev']);
        }
    }

    /**
     * What `unstale map describe` says of a map.
     *
     * @param array<string, string> $env
     */
    private static function readsVersion(string $file, array $env): string
    {
        $command = [MySQL::UNSTALE, 'map', 'describe', '--json', self::ROOT . $file];
        $process = \proc_open($command, [1 => ['pipe', 'w']], $pipes, null, $env);
        $described = \json_decode(\stream_get_contents($pipes[1]), true, flags: \JSON_THROW_ON_ERROR);
        self::assertSame(0, \proc_close($process));
        return $described['reads_version'];
    }

    /** @return list<array{ReadMap, string, array<string, string>}> */
    public static function maps(): array
    {
        return [
            [ShopCache::map(), 'mapping.yaml', ['APP_ENV' => 'dev']],
            [ShopCache::map(), 'mapping.yaml', ['APP_ENV' => 'prod', 'KEY_PREFIX' => 'a "b" \\ é 🛒']],
            [All::map(), 'internal/maptool/testdata/all.yaml', ['APP_ENV' => 'prod']],
            [Words::map(), 'internal/maptool/testdata/words.yaml', ['APP_ENV' => '']],
            [Names::map(), 'internal/maptool/testdata/php.yaml', []],
        ];
    }

    /**
     * @dataProvider maps
     *
     * @param array<string, string> $env
     */
    public function testTheFingerprintIsThatOfMapDescribe(ReadMap $map, string $file, array $env): void
    {
        $map->use($env);
        self::assertSame(self::readsVersion($file, $env), $map->version());
    }

    public function testReadsHaveTheKeysTagsAndTimesOfTheMap(): void
    {
        $read = ShopCache::productPage(42);
        self::assertSame(
            ['zahraah:dev:product:42', 'product_page', 600_000, 0.1, 60_000, 0, 120_000, [], null],
            [$read->key, $read->name, $read->ttl, $read->jitter, $read->stale, $read->staleOnError, $read->negative, $read->tags, $read->error],
        );
        self::assertSame('zahraah:dev:product:9007199254740993', ShopCache::productPage('9007199254740993')->key);
        self::assertSame('zahraah:dev:product:-9223372036854775808', ShopCache::productPage(\PHP_INT_MIN)->key);
        self::assertSame('zahraah:dev:category:7:list:p2:sort:a:b*?', ShopCache::categoryList(7, 2, 'a:b*?')->key);
        $home = ShopCache::home();
        self::assertSame(['zahraah:dev:home', 45_000, 10_000], [$home->key, $home->ttl, $home->stale]);
        $list = All::categoryList('0AF76519-16CD-43DD-8448-EB211C80319C', 20, 'price');
        self::assertSame('zahraah:dev:category:0af76519-16cd-43dd-8448-eb211c80319c:list:p20:sort:price', $list->key);
        self::assertSame(0, $list->negative);
        $home = All::home(42, 'de');
        self::assertSame(['zahraah:dev:de:home', ['brand:42']], [$home->key, $home->tags]);
        $level = Words::level('9007199254740993', 5);
        self::assertSame(['level:9007199254740993', ['size:5'], 3_600_000], [$level->key, $level->tags, $level->ttl]);
        self::assertSame('a`$:dev\\"{:a:b:c:d:e:f:g', Words::delete('a', 'b', 'c', 'd', 'e', 'f', 'g')->key);
        $read = Words::intText('x');
        self::assertSame([100, 0.5, 3_600_000, 5000], [$read->ttl, $read->jitter, $read->staleOnError, $read->negative]);
    }

    public function testNamesAndTextsOfPHPAreOnlyText(): void
    {
        $quote = 'it\'s \\ ?> $HOME {$x} <?php';
        self::assertSame("$quote:1:2:3:4:5:6", Names::class(1, '2', '3', '4', '5', '6')->key);
        self::assertSame($quote, Names::static()->key);
        self::assertSame('list:-2', Names::list(-2)->key);
        self::assertNotNull(Names::list(1)->error);
        $row = ['class', '1', '{"GLOBALS":"g","static":"s","this":["t"]}', ''];
        self::assertSame([$row], self::rows(Names::invalidateClass(1, ['this' => ['t'], 'static' => 's', 'GLOBALS' => 'g'])));
    }

    /** @return iterable<string, array{callable(): \Unstale\Read}> */
    public static function notCached(): iterable
    {
        $uuid = '0af76519-16cd-43dd-8448-eb211c80319c';
        yield 'a fraction' => [static fn () => ShopCache::productPage(1.5)];
        yield 'a float without a fraction' => [static fn () => ShopCache::productPage(42.0)];
        yield 'a boolean' => [static fn () => ShopCache::productPage(true)];
        yield 'null' => [static fn () => ShopCache::productPage(null)];
        yield 'a list' => [static fn () => ShopCache::productPage([42])];
        yield 'a number as a float' => [static fn () => ShopCache::productPage('1e5')];
        yield 'another text of a number' => [static fn () => ShopCache::productPage('042')];
        yield 'minus zero' => [static fn () => ShopCache::productPage('-0')];
        yield 'a number with a space' => [static fn () => ShopCache::productPage('42 ')];
        yield 'more than 64 bits' => [static fn () => ShopCache::productPage('9223372036854775808')];
        yield 'no text' => [static fn () => ShopCache::coupon('')];
        yield 'null for a text' => [static fn () => ShopCache::coupon(null)];
        yield 'null for a UUID' => [static fn () => All::categoryList(null, 1, 'new')];
        yield 'text without UTF-8' => [static fn () => ShopCache::coupon("\xed\xa0\x80")];
        yield '256 characters' => [static fn () => ShopCache::coupon(\str_repeat('🛒', 256))];
        yield 'a page that the map does not list' => [static fn () => All::categoryList($uuid, 21, 'new')];
        yield 'an order that the map does not list' => [static fn () => All::categoryList($uuid, 1, 'old')];
        yield 'what is not a UUID' => [static fn () => All::categoryList(\str_replace('-', '', $uuid), 1, 'new')];
        yield 'a UUID and a line feed' => [static fn () => All::categoryList("$uuid\n", 1, 'new')];
        yield 'a value between those of a list' => [static fn () => Words::level(2, 5)];
    }

    /** @dataProvider notCached */
    public function testAValueThatNoRowHasIsNotCached(callable $read): void
    {
        self::assertStringContainsString('and the map makes no such key stale', $read()->error);
        self::assertSame('', $read()->key);
    }

    public function testTheLongestTextIs(): void
    {
        self::assertNull(ShopCache::coupon(\str_repeat('🛒', 255))->error);
    }

    public function testNothingIsCachedWithoutTheVariablesOfTheMap(): void
    {
        foreach (['' => 'the environment variable APP_ENV is not set, and the var env of the map needs it', 'test' => 'must be one of dev, staging, prod'] as $value => $message) {
            try {
                ShopCache::map()->use(['APP_ENV' => $value]);
                self::fail('it does not throw');
            } catch (\RuntimeException $error) {
                self::assertStringContainsString($message, $error->getMessage());
            }
            self::assertStringContainsString($message, ShopCache::productPage(42)->error);
            self::assertSame('', ShopCache::map()->version());
        }
    }

    public function testVariablesComeFromTheEnvironmentButNotFromARequest(): void
    {
        $map = static fn (string $name): string => (new ReadMap('x', [['name' => 'v', 'text' => "\${{$name}:-default}"]]))->vars()[0];
        $_SERVER['UNSTALE_X'] = 'server';
        self::assertSame('server', $map('UNSTALE_X'));
        $_ENV['UNSTALE_X'] = 'env';
        self::assertSame('env', $map('UNSTALE_X'));
        unset($_SERVER['UNSTALE_X'], $_ENV['UNSTALE_X']);
        self::assertSame('default', $map('UNSTALE_X'));
        \putenv('UNSTALE_X=process');
        self::assertSame('process', $map('UNSTALE_X'));
        \putenv('UNSTALE_X');
        $_SERVER['HTTP_X'] = 'header';
        self::assertSame('default', $map('HTTP_X'));
        unset($_SERVER['HTTP_X']);
    }

    /** @return list<list<string|null>> */
    private static function rows(Invalidation ...$invalidations): array
    {
        return Row::all($invalidations)[0];
    }

    public function testInvalidationsAreTheRowsOfGosGeneratedCode(): void
    {
        $rows = self::rows(
            ShopCache::invalidateProduct(42, ['category_id' => [7, '9', 11]]),
            ShopCache::invalidateProduct('42'),
            ShopCache::invalidateVariant(3, [42], ['category_id' => 7]),
            ShopCache::invalidateCoupon('SUMMER'),
            All::invalidateProduct(1, ['0AF76519-16CD-43DD-8448-EB211C80319C']),
            Words::invalidatePage('1', 'i', 'a', ['DE'], ['EUR'], ['size' => 5]),
        );
        self::assertSame([
            ['product', '42', '{"category_id":[7,9,11]}', ''],
            ['product', '42', null, ''],
            ['variant', '3', '{"category_id":7,"product_id":[42]}', ''],
            ['coupon', 'SUMMER', null, ''],
            ['product', '1', '{"category_id":["0af76519-16cd-43dd-8448-eb211c80319c"]}', ''],
            ['page', '1', '{"ID":"i","any":"a","country":["DE"],"currency":["EUR"],"size":5}', ''],
        ], $rows);
    }

    /** @return list<array{string, Invalidation}> */
    public static function refused(): array
    {
        return [
            ['id: a float is not an ID; pass text or an integer', ShopCache::invalidateProduct(1.5)],
            ['id: "abc" is not an integer of 64 bits', ShopCache::invalidateProduct('abc')],
            ['params.category_id: element 0: "x" is not an integer of 64 bits', ShopCache::invalidateProduct(1, ['category_id' => ['x']])],
            ['params.categoryId: is not an optional parameter of product in the map', ShopCache::invalidateProduct(1, ['categoryId' => 7])],
            ['params.product_id: is not an optional parameter of variant in the map', ShopCache::invalidateVariant(1, 2, ['product_id' => 7])],
            ['params.product_id: is missing; the map requires it', ShopCache::invalidateVariant(1, null)],
            ['params.0: is not an optional parameter of product in the map', ShopCache::invalidateProduct(1, [7])],
        ];
    }

    /** @dataProvider refused */
    public function testInvalidationsThatTheMapDoesNotHaveAreRefused(string $message, Invalidation $invalidation): void
    {
        $this->expectException(FieldError::class);
        $this->expectExceptionMessage($message);
        self::rows($invalidation);
    }
}
