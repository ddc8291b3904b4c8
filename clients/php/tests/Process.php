<?php

declare(strict_types=1);

namespace Unstale\Tests;

/** Programs of tests, which end with this process. */
final class Process
{
    /**
     * Starts a program whose output is appended to a file.
     *
     * @return resource
     */
    public static function start(string $log, string ...$command)
    {
        $output = ['file', $log, 'a'];
        $streams = [['file', '/dev/null', 'r'], $output, $output];
        return \proc_open(['setpriv', '--pdeathsig', 'KILL', ...$command], $streams, $pipes);
    }

    /** @param resource $process */
    public static function kill($process): void
    {
        \proc_terminate($process, \SIGKILL);
        \proc_close($process);
    }
}
