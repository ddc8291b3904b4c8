<?php

declare(strict_types=1);

namespace Unstale;

/** The part of a map that a generated class contains. Applications call `use` and `check`. */
final class ReadMap
{
    /** @var list<string>|null the values of the variables, null before the first read */
    private ?array $values = null;

    private ?string $error = null;

    /**
     * Called by generated code.
     *
     * @param list<array{name: string, text: string, oneOf?: list<string>}> $vars
     */
    public function __construct(private readonly string $hash, private readonly array $vars = [])
    {
    }

    /**
     * Sets the values of the map's variables. Without it, they come from the environment at the
     * first read: `$_ENV`, `$_SERVER` (but no headers of the request), and getenv().
     *
     * @param array<string, string> $env
     *
     * @throws \RuntimeException if one is missing or has a value that the map does not allow
     */
    public function use(array $env): void
    {
        $this->resolve(static fn (string $name): ?string => $env[$name] ?? null);
        $this->check();
    }

    /** @throws \RuntimeException if a variable is missing: reads are then loaded and not cached */
    public function check(): void
    {
        if ($this->error() !== null) {
            throw new \RuntimeException($this->error());
        }
    }

    /** Returns why the reads of the map are not cached, or null. */
    public function error(): ?string
    {
        $this->vars();
        return $this->error;
    }

    /** Returns the fingerprint of the reads with the values of the variables, '' if `check` throws. */
    public function version(): string
    {
        $quoted = \array_map(Text::quote(...), $this->vars());
        $text = "reads 1 $this->hash [" . \implode(' ', $quoted) . ']';
        return $this->error === null ? \substr(\hash('sha256', $text), 0, 12) : '';
    }

    /**
     * Returns the values of the variables, for generated code; all '' if `check` throws.
     *
     * @return list<string>
     */
    public function vars(): array
    {
        if ($this->values === null) {
            $this->resolve(self::environment(...));
        }
        return $this->values;
    }

    /**
     * Called by generated code.
     *
     * @throws \ValueError for a time or a jitter outside of its limits
     */
    public function entry(
        string $name,
        int $ttl,
        float $jitter = 0.15,
        ?int $stale = null,
        int $staleOnError = 0,
        ?int $negative = null,
    ): ReadEntry {
        return new ReadEntry($this, new Read('', $ttl, $name, $jitter, $stale, $staleOnError, $negative));
    }

    /** @param callable(string): ?string $find */
    private function resolve(callable $find): void
    {
        $errors = $this->values = [];
        foreach ($this->vars as $var) {
            [$name, $oneOf] = [$var['name'], $var['oneOf'] ?? null];
            $unset = null;
            $replace = static function (array $match) use ($find, $oneOf, &$unset): string {
                $found = $find($match[1]);
                if (($found ?? '') === '' && isset($match[2])) {
                    return $match[2];
                }
                if ($found === null || ($found === '' && $oneOf !== null)) {
                    $unset ??= $match[1];
                }
                return $found ?? '';
            };
            $value = \preg_replace_callback('/\$\{(.*?)(?::-(.*?))?\}/s', $replace, $var['text']);
            if ($unset !== null) {
                $errors[] = "the environment variable $unset is not set, and the var $name of the map needs it";
            } elseif ($value === '') {
                $errors[] = "the var $name of the map is empty";
            } elseif ($oneOf !== null && !\in_array($value, $oneOf, true)) {
                $errors[] = "the var $name of the map is " . Text::quote($value) . ': must be one of '
                    . \implode(', ', $oneOf);
            }
            $this->values[] = $value;
        }
        $this->error = $errors === [] ? null : \implode("\n", $errors);
        if ($errors !== []) {
            $this->values = \array_fill(0, \count($this->vars), '');
        }
    }

    /** A header of a request, which its sender chooses, is in $_SERVER and getenv() as HTTP_NAME. */
    private static function environment(string $name): ?string
    {
        $found = $_ENV[$name] ?? (\str_starts_with($name, 'HTTP_') ? null : $_SERVER[$name] ?? null);
        if (\is_string($found)) {
            return $found;
        }
        $found = \getenv($name, true);
        return $found === false ? null : $found;
    }
}
