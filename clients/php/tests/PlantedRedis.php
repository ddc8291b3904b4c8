<?php

declare(strict_types=1);

namespace Unstale\Tests;

use Unstale\Scripts;

/** A connection with a bug, which `unstale-lab verify --plant` must find. */
final class PlantedRedis extends \Redis
{
    public string $bug = '';
    public \Redis $other;

    public function rawCommand($cmd, ...$args): mixed
    {
        $script = $cmd === 'EVALSHA' ? \array_search($args[0], Scripts::SHA1, true) : '';
        $isFill = $script === 'fill' || $cmd === 'EVAL' && \str_contains($args[0], 'Stores what was loaded under a lease');
        if ($this->bug === 'left-lease' && \in_array($cmd, ['EVALSHA', 'EVAL'], true)) {
            $args[2] = \str_replace('lock:fill:', 'lock:mine:', $args[2]);
        }
        if ($isFill) { // the keys are 2 to 4, the arguments 5 to 7
            [$cmd, $args] = match ($this->bug) {
                'bare-fill' => ['SET', [$args[4], $args[6], 'PX', $args[7]]],
                'old-birth' => [$cmd, \array_replace($args, [6 => \preg_replace_callback(
                    '/"b":(\d+)/',
                    static fn (array $b): string => '"b":' . ($b[1] - 60_000_000),
                    $args[6],
                )])],
                'late-stamps' => [$cmd, \array_replace($args, [6 => $this->stamped($args[6])])],
                default => [$cmd, $args],
            };
        }
        $reply = parent::rawCommand($cmd, ...$args);
        return $reply === true ? 1 : $reply;
    }

    public function exec(): mixed
    {
        $replies = parent::exec();
        return \is_array($replies) ? \array_map(static fn (mixed $one): mixed => $one === true ? 1 : $one, $replies) : $replies;
    }

    /** Returns an entry with the versions of now. */
    private function stamped(string $entry): string
    {
        return \preg_replace_callback('/"t":(\{.*?\})/', function (array $found): string {
            $tags = \json_decode($found[1], true);
            foreach ($tags as $tag => $version) {
                $name = "stamp:$tag";
                $text = \file_get_contents(__DIR__ . '/../lua/stamp.lua');
                $tags[$tag] = $this->other->eval($text, [$name, "lock:hold:{{$name}}", \bin2hex(\random_bytes(8)), 3_600_000], 2);
            }
            return '"t":' . \json_encode($tags);
        }, $entry, 1);
    }
}
