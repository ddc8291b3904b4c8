<?php

declare(strict_types=1);

namespace Unstale\Tests;

use PHPUnit\Framework\TestCase;
use Unstale\Token;

final class TokenTest extends TestCase
{
    /** @return array<string, array{array<string, mixed>}> */
    public static function cases(): array
    {
        return Conformance::cases('tokens');
    }

    /**
     * @dataProvider cases
     *
     * @param array<string, mixed> $case
     */
    public function testTokensOfTheProtocol(array $case): void
    {
        if (isset($case['refused'])) {
            $this->expectException(\ValueError::class);
            $this->expectExceptionMessage('parse token: ');
        }
        $token = Token::parse(Conformance::bytes($case['token']));
        self::assertSame($case['canonical'] ?? '', (string) $token);
        self::assertSame($case['source'] ?? '', $token->source);
        self::assertSame($case['made'] ?? 0, $token->made);
        self::assertSame(($case['rows'] ?? '') === 'many', $token->many);
        $first = \array_merge([], ...\array_map(
            static fn (array $run): array => \array_slice(self::ids($run), 0, 5),
            $token->runs,
        ));
        self::assertSame($case['first_ids'] ?? [], $first);
        if (isset($case['query'])) {
            self::assertSame(\implode("\n", $case['query']), $token->query());
        }
    }

    public function testTokensOfTwoWritesAreJoined(): void
    {
        $joined = Conformance::file('tokens')['joined'];
        self::assertNotEmpty($joined);
        foreach ($joined as $case) {
            $tokens = \array_map(Token::parse(...), $case['tokens']);
            try {
                $text = (string) $tokens[0]->join($tokens[1]);
            } catch (\ValueError $error) {
                self::assertSame($case['error'] ?? '', $error->getMessage(), $case['reason']);
                continue;
            }
            self::assertSame($case['token'] ?? '', $text, $case['reason']);
        }
    }

    public function testRunsBeyond63BitsAreRefused(): void
    {
        $this->expectExceptionMessage('a number is too large');
        Token::parse('1.0123456789abcdef0123456789abcdef.t6z3k1.1y2p0ij32e8e7-2');
    }

    /**
     * @param array{int, int, int} $run
     *
     * @return list<int>
     */
    private static function ids(array $run): array
    {
        return \array_map(static fn (int $i): int => $run[0] + $i * $run[2], \range(0, $run[1] - 1));
    }
}
