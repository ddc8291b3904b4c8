<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;

final class PackageTest extends TestCase
{
    private const ROOT = __DIR__ . '/../../../';
    private const PACKAGE = __DIR__ . '/../';

    public function testTheScriptsAreThoseOfTheProtocol(): void
    {
        $scripts = \glob(self::PACKAGE . 'lua/*.lua');
        self::assertNotEmpty($scripts);
        foreach ($scripts as $script) {
            self::assertFileEquals(self::ROOT . 'protocol/scripts/' . \basename($script), $script);
        }
        self::assertFileEquals(self::ROOT . 'LICENSE', self::PACKAGE . 'LICENSE');
    }

    /** Strict types make a float as an argument an error, where PHP would cut it. */
    public function testEachFileHasStrictTypesAndNeedsNoOtherExtension(): void
    {
        $files = new \RegexIterator(
            new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator(self::PACKAGE . 'src')),
            '/\.php$/',
        );
        foreach ($files as $file) {
            $text = \file_get_contents((string) $file);
            self::assertStringStartsWith("<?php\n\ndeclare(strict_types=1);\n", $text, (string) $file);
            self::assertDoesNotMatchRegularExpression('/\b(mb|bc|gmp|ctype|iconv|intl)_/', $text, (string) $file);
        }
    }
}
