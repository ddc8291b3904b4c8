<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;

/** Does what README.md says, with its commands and its code. */
final class ReadmeTest extends TestCase
{
    private const ROOT = __DIR__ . '/../../..';

    private static string $folder;

    private static ?RedisServer $redis = null;

    /** @var resource|null */
    private static $worker;

    public static function setUpBeforeClass(): void
    {
        self::$folder = \sys_get_temp_dir() . '/unstale-readme-' . \bin2hex(\random_bytes(6));
        \mkdir(self::$folder);
    }

    public static function tearDownAfterClass(): void
    {
        self::$worker === null || Process::kill(self::$worker);
        self::$redis?->stop();
        \exec('rm -rf ' . \escapeshellarg(self::$folder));
    }

    /**
     * The blocks of a page in a language.
     *
     * @return list<string>
     */
    private static function blocks(string $page, string $language): array
    {
        \preg_match_all("/^```$language\n(.*?)^```/ms", \file_get_contents(self::ROOT . "/$page"), $found);
        return $found[1];
    }

    /** @return list<array{string, list<string>}> */
    public static function pages(): array
    {
        return [
            ['clients/php/README.md', \glob(__DIR__ . '/readme*.php')],
            ['clients/php/frameworks/README.md', \glob(self::ROOT . '/clients/php/frameworks/{docs-*.php,services.yaml}', \GLOB_BRACE)],
        ];
    }

    /**
     * @dataProvider pages
     *
     * @param list<string> $files
     */
    public function testHasOnlyCodeThatIsRun(string $page, array $files): void
    {
        $code = \implode("\n", \array_map(static fn (string $file): string => \file_get_contents($file), $files));
        $blocks = self::blocks($page, '(?:php|yaml)');
        self::assertGreaterThan(3, \count($blocks));
        foreach ($blocks as $block) {
            self::assertStringContainsString($block, $code);
        }
    }

    /** Runs a command in the folder of the application. */
    private static function runs(string $command): void
    {
        \exec('cd ' . \escapeshellarg(self::$folder) . " && $command 2>&1", $output, $code);
        self::assertSame(0, $code, \implode("\n", $output));
    }

    public function testWorksAsItSays(): void
    {
        $mysql = MySQL::shared();
        $mysql->database('readme');
        self::$redis = new RedisServer();
        $url = self::$redis->url();

        [$install, $commands] = self::blocks('clients/php/README.md', 'sh');
        \putenv('PATH=' . \realpath(self::ROOT . '/bin') . ':' . \getenv('PATH'));
        \putenv('COMPOSER_HOME=' . self::$folder . '/composer');
        self::runs(\escapeshellarg(\realpath(self::ROOT . '/clients/php/pack')) . ' 0.1.0 .');
        \copy(self::ROOT . '/mapping.yaml', self::$folder . '/mapping.yaml');
        $application = '{"repositories": {"packagist.org": false}, "autoload": {"psr-4": {"App\\\\": "src/"}}}';
        \file_put_contents(self::$folder . '/composer.json', $application);
        self::runs("sh -ec '" . \str_replace("'", "'\\''", $install) . "'");
        self::assertFileEquals(__DIR__ . '/../src/Cache.php', self::$folder . '/vendor/unstale/client/src/Cache.php');

        $script = \strtr($commands, [
            'unstale:unstale@tcp(127.0.0.1:3306)/shop' => $mysql->goDSN('readme'),
            'redis://127.0.0.1:6379/0' => $url,
            'unstale run' => 'exec unstale run --listen - --map ' . \realpath(self::ROOT . '/mapping.yaml'),
        ]);
        self::$worker = Process::start(self::$folder . '/log', 'sh', '-ec', $script);

        foreach (['PDO_DSN' => $mysql->dsn('readme'), 'PDO_USER' => 'root', 'PDO_PASSWORD' => '', 'REDIS_URL' => $url, 'APP_ENV' => 'dev'] as $name => $value) {
            \putenv("$name=$value");
        }
        $admin = $mysql->connect('readme');
        $admin->exec('CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)');
        $admin->exec('CREATE TABLE product_categories (product_id INT, category_id INT)');
        $admin->exec('INSERT INTO products VALUES (42, 4990), (43, 1250)');

        \class_exists('App\ShopCache', false) || require self::$folder . '/src/ShopCache.php'; // or of another test
        require __DIR__ . '/readme.php';
        $old = ['id' => 42, 'cents' => 4990];
        self::assertSame($old, \page($cache, $pdo, 42));
        self::assertSame($old, \page($cache, $pdo, 42));
        self::assertNull(\page($cache, $pdo, 44));
        self::assertSame([2, 1], [$cache->stats()['loads'], $cache->stats()['hits']]);
        self::assertSame([['id' => 43, 'cents' => 1250], $old], \pages($cache, $pdo, 43, 42, 44));

        $token = \changePrice($pdo, 42, 4490);
        $new = ['id' => 42, 'cents' => 4490];
        self::assertSame($new, \page($cache, $pdo, 42, $token));
        self::eventually(static fn (): bool => \page($cache, $pdo, 42) === $new);

        // The worker has no rows any more, and gets those of readme-writes.php.
        $waiting = static fn (): bool => (int) $admin->query('SELECT COUNT(*) FROM cache_outbox')->fetchColumn() > 0;
        self::eventually(static fn (): bool => !$waiting());
        require __DIR__ . '/readme-writes.php';
        self::assertSame('zahraah:dev:product:42', $read->key);
        self::assertSame([['category_id' => [7, 9]], 'sale'], [$invalidation->params, $later->trace]);
        self::assertSame($new, \page($cache, $pdo, 42, $token));
        self::eventually(static fn (): bool => !$waiting());
    }

    private static function eventually(callable $condition): void
    {
        for ($end = \microtime(true) + 20; !$condition(); \usleep(20_000)) {
            self::assertLessThan($end, \microtime(true), 'not within 20 s: ' . \file_get_contents(self::$folder . '/log'));
        }
    }
}
