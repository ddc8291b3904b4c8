<?php

declare(strict_types=1);

namespace Unstale;

/**
 * Where a cache gets its connections to Redis from. They are its own: a connection whose answer did
 * not come in time is closed, because phpredis would return the late answer for the next command.
 */
final class Connections
{
    /** Identifies the servers in APCu. */
    public readonly string $name;

    /** @var \WeakReference<\Redis|\RedisCluster>|null */
    private ?\WeakReference $latest = null;

    /**
     * Makes connections with a function. It gets the seconds that connecting may take, and whether
     * the connection must be a new one, not of pconnect: that is how the cache finds out whether
     * workers have left a server.
     *
     * @param \Closure(float, bool): (\Redis|\RedisCluster) $open returns a connection that nothing
     *                                                            else uses, without OPT_PREFIX,
     *                                                            OPT_SERIALIZER and OPT_COMPRESSION
     * @param string|null                                   $name identifies the servers, if PHP
     *                                                            applications with several share an
     *                                                            APCu. Default: the line of the function
     * @param bool                                          $isCluster whether it returns a \RedisCluster
     */
    public function __construct(
        private readonly \Closure $open,
        ?string $name = null,
        public readonly bool $isCluster = false,
    ) {
        $function = new \ReflectionFunction($open);
        $this->name = $name ?? \substr(\sha1($function->getFileName() . ':' . $function->getStartLine()), 0, 16);
    }

    /** @return array<string, mixed> without the function, which has the password */
    public function __debugInfo(): array
    {
        return ['name' => $this->name, 'isCluster' => $this->isCluster];
    }

    /**
     * Connects to one server.
     *
     * @param string               $url          redis://user:password@host:6379/0, rediss:// for TLS, or
     *                                           unix:///path. As for the worker, it may have
     *                                           ?db=0, and with TLS ?skip_verify=true
     * @param bool                 $isPersistent keeps connections for later requests of a process of PHP-FPM
     * @param array<string, mixed> $tls          the options of PHP's context `ssl`, such as `cafile`
     *
     * @throws \ValueError for another URL
     */
    public static function url(
        #[\SensitiveParameter] string $url,
        bool $isPersistent = false,
        array $tls = [],
    ): self {
        $parts = self::parse($url);
        $open = static fn (float $seconds, bool $isFresh): \Redis
            => self::connect($parts, $seconds, $isPersistent && !$isFresh, $tls);
        return new self($open, \substr(\sha1($url), 0, 16));
    }

    /**
     * Connects to the master that Sentinels name, which are asked in this order for each connection.
     *
     * @param list<string>         $sentinels URLs: redis://host:26379
     * @param string               $service   the name of the master
     * @param string               $url       has the user, password and database of the master, and rediss: for
     *                                        TLS. Its host does not count
     * @param array<string, mixed> $tls       as for `url`, also for Sentinels with rediss:
     *
     * @throws \ValueError for another URL
     */
    public static function sentinel(
        #[\SensitiveParameter] array $sentinels,
        string $service,
        #[\SensitiveParameter] string $url = 'redis://master',
        array $tls = [],
    ): self {
        $parts = self::parse($url);
        $all = \array_map(self::parse(...), $sentinels);
        if (\array_filter(\array_column($all, 'database'))) {
            throw new \ValueError('the URL of a Sentinel: it has no database; give the master\'s in $url');
        }
        $open = static function (float $seconds) use ($parts, $all, $service, $tls): \Redis {
            $error = null;
            foreach ($all as $sentinel) {
                try {
                    $master = self::connect(['port' => $sentinel['port'] ?? 26379] + $sentinel, $seconds, false, $tls)
                        ->rawCommand('SENTINEL', 'get-master-addr-by-name', $service);
                } catch (\RedisException $error) {
                    continue;
                }
                if (isset($master[1])) {
                    $there = ['host' => $master[0], 'port' => (int) $master[1]] + $parts;
                    return self::connect($there, $seconds, false, $tls);
                }
            }
            throw new \RedisException("no Sentinel names the master of $service", 0, $error);
        };
        return new self($open, \substr(\sha1($service . $url), 0, 16));
    }

    /**
     * Connects to the masters of a Redis Cluster. The commands of a step are sent one by one, since
     * \RedisCluster has no pipelines: a hit costs a round trip, and one more for each tag.
     *
     * @param list<string>         $seeds host:port of some nodes
     * @param string|list<string>  $auth  a password, or a user and a password. '': none
     * @param array<string, mixed> $tls   as for `url`. Empty: without TLS
     *
     * @throws \ValueError for other seeds
     */
    public static function cluster(
        array $seeds,
        #[\SensitiveParameter] string|array $auth = '',
        array $tls = [],
    ): self {
        if (\preg_grep('~^(tls://)?[^/?@]+:\d+$~D', $seeds, \PREG_GREP_INVERT)) {
            throw new \ValueError('the seeds of a Redis Cluster must be host:port; it has only database 0');
        }
        $open = static fn (float $seconds): \RedisCluster
            => new \RedisCluster(null, $seeds, $seconds, $seconds, false, $auth === '' ? null : $auth, $tls ?: null);
        return new self($open, \substr(\sha1(\implode(',', $seeds)), 0, 16), true);
    }

    /**
     * Returns a new connection.
     *
     * @internal
     *
     * @throws Fault           if there is none
     * @throws \LogicException if the function returns one that cannot be used
     */
    public function open(float $seconds, bool $isFresh): \Redis|\RedisCluster
    {
        try {
            $link = @($this->open)($seconds, $isFresh);
        } catch (\Exception $e) {
            throw new Fault('Redis cannot be reached: ' . $e->getMessage(), false, $e);
        }
        $class = $this->isCluster ? \RedisCluster::class : \Redis::class;
        if (!$link instanceof $class) {
            throw new \LogicException("Connections: the function must return a connected \\$class");
        }
        if ($this->latest?->get() === $link) {
            throw new \LogicException('Connections: the function must return a new connection each time');
        }
        if ($link instanceof \Redis && !$link->isConnected()) {
            throw new Fault('Redis cannot be reached: the function returned a \Redis that is not connected', false);
        }
        if ($link->getMode() !== \Redis::ATOMIC) {
            throw new \LogicException('Connections: the connection is in multi() or pipeline(); return a new one');
        }
        foreach (['OPT_PREFIX', 'OPT_SERIALIZER', 'OPT_COMPRESSION'] as $option) {
            if ($link->getOption(\constant("Redis::$option"))) {
                throw new \LogicException("Connections: the connection has $option; return a new connection without "
                    . 'it, because the map defines the keys, and other languages read the values');
            }
        }
        $link->setOption(\Redis::OPT_READ_TIMEOUT, (string) $seconds);
        $link->setOption(\Redis::OPT_REPLY_LITERAL, 0);
        if ($link instanceof \Redis) {
            $link->setOption(\Redis::OPT_MAX_RETRIES, 0); // the next connection may lead to another server
        }
        $this->latest = \WeakReference::create($link);
        return $link;
    }

    /** @return array<string, mixed> */
    private static function parse(#[\SensitiveParameter] string $url): array
    {
        $parts = \parse_url(\preg_replace('~^unix:/+~', 'unix://unix/', $url));
        $isKnown = \is_array($parts) && \in_array($parts['scheme'] ?? '', ['redis', 'rediss', 'unix'], true);
        if (!$isKnown || !isset($parts['host'])) {
            throw new \ValueError('the URL of Redis must begin with redis://, rediss:// or unix://, and have a host');
        }
        // No error has a text of the URL, which may be a part of a password.
        $refuse = static fn (string $why): never => throw new \ValueError("the URL of Redis: $why");
        isset($parts['fragment']) && $refuse('it has # after the host; write %23 for # in a password');
        $options = [];
        foreach (\array_filter(\explode('&', $parts['query'] ?? ''), \strlen(...)) as $part) {
            [$name, $value] = \array_map(\rawurldecode(...), \explode('=', $part, 2)) + [1 => ''];
            $isKnown = \in_array($name, ['db', 'skip_verify'], true);
            $isKnown || $refuse('its query has an unknown option; known are db, skip_verify');
            isset($options[$name]) && $refuse("its query has $name twice");
            $options[$name] = $value;
        }
        $path = $parts['scheme'] === 'unix' ? '/' : $parts['path'] ?? '/';
        \preg_match('~^/\d*$~D', $path) === 1 || $refuse('its path must be / and the number of a database');
        $path !== '/' && isset($options['db']) && $refuse('it has the database twice, in the path and in the query');
        $database = $options['db'] ?? (\substr($path, 1) ?: '0');
        $isNumber = \preg_match('/^\d+$/D', $database) === 1 && (int) $database < 1 << 31;
        $isNumber || $refuse('its database must be a number, 0 or more');
        $verify = \strtolower($options['skip_verify'] ?? 'false');
        $isBool = \in_array($verify, ['1', 't', 'true', '0', 'f', 'false'], true);
        $isBool || $refuse('its option skip_verify must be true or false');
        $skips = $verify[0] === '1' || $verify[0] === 't';
        $skips && $parts['scheme'] !== 'rediss' && $refuse('it has skip_verify, but TLS is off');
        return ['database' => (int) $database, 'skips' => $skips] + $parts;
    }

    /**
     * @param array<string, mixed> $parts
     * @param array<string, mixed> $tls
     */
    private static function connect(
        #[\SensitiveParameter] array $parts,
        float $seconds,
        bool $isPersistent,
        array $tls,
    ): \Redis {
        $redis = new \Redis();
        $tls = $parts['skips'] ? ['verify_peer' => false, 'verify_peer_name' => false] + $tls : $tls;
        $tls = $parts['scheme'] === 'rediss' ? ['stream' => $tls] : [];
        $user = isset($parts['user']) && $parts['user'] !== '' ? [\rawurldecode($parts['user'])] : [];
        $auth = isset($parts['pass']) ? ['auth' => [...$user, \rawurldecode($parts['pass'])]] : [];
        $host = ($parts['scheme'] === 'rediss' ? 'tls://' : '') . \trim($parts['host'], '[]');
        $where = $parts['scheme'] === 'unix' ? [$parts['path'] ?? '', 0] : [$host, $parts['port'] ?? 6379];
        // A persistent connection has a user and a database, and must not serve another URL. A pool of
        // phpredis ignores the ID, so SELECT is always sent.
        $id = $isPersistent ? \sha1(\serialize([$parts, $tls])) : null;
        $reason = null; // PHP's first warning; the last one only says that TLS has failed
        \set_error_handler(static function (int $level, string $text) use (&$reason): bool {
            $reason ??= \preg_replace(['/^[\w:]+\(\): /', '/\s+/'], ['', ' '], \trim($text));
            return true;
        });
        try {
            $open = $isPersistent ? $redis->pconnect(...) : $redis->connect(...);
            if (!$open($where[0], $where[1], $seconds, $id, 0, $seconds, $tls + $auth)) {
                throw new \RedisException($reason ?? 'the password is wrong');
            }
        } finally {
            \restore_error_handler();
        }
        if (($isPersistent || $parts['database'] > 0) && !$redis->select($parts['database'])) {
            throw new \RedisException("there is no database $parts[database]");
        }
        return $redis;
    }
}
