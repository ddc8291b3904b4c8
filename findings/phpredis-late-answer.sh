#!/usr/bin/env bash
# After a read timeout, phpredis closes the connection only for commands whose replies it knows. After
# rawCommand, eval and evalSha it keeps the connection: the late reply arrives later, and the next
# command, of any kind, returns it as its own. There is no error, and with another rawCommand the
# replies stay one command behind for the life of the connection.
#
# Seen: phpredis 5.3.7 with PHP 8.2 and Redis 7.0.15 of Debian 12, and phpredis 6.2.0 with PHP 8.4 and
# Redis 8.0.6. The keys a and b have the values A and B. Redis is paused for longer than
# OPT_READ_TIMEOUT while a is read, then b is read three times by GET:
#
#   get: read error on connection; B B B
#   mget: read error on connection; B B B
#   pipeline: read error on connection; B B B
#   rawCommand: socket error on read socket; A B B
#   eval: socket error on read socket; A B B
#
# Whoever sets a read timeout must close the connection after a RedisException, also one of pconnect,
# which the next request of the process would get.
#
# Needs root or user namespaces, and mmdebstrap. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
mkdir "$tmp/root"
mmdebstrap --mode=$mode --variant=extract --format=tar --include=redis-server,php8.2-cli,php8.2-redis,php8.2-igbinary,libc-bin bookworm - 2>"$tmp/log" |
	{ tar --extract --directory "$tmp/root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
libs=$(printf '%s:' "$tmp"/root/usr/lib/*-linux-gnu* "$tmp"/root/lib/*-linux-gnu*)
run() { "$(ls "$tmp"/root/lib64/ld-linux-*.so.* "$tmp"/root/lib/ld-linux-*.so.* 2>/dev/null | head -n 1)" --library-path "$libs" "$tmp/root/usr/bin/$1" "${@:2}"; }
run redis-server --port 0 --unixsocket "$tmp/s" --save '' --dir "$tmp" >>"$tmp/log" 2>&1 &
server=$!

cat >"$tmp/run.php" <<'PHP'
<?php
$connect = function () use ($argv): Redis {
    for ($i = 0; ; $i++) {
        try {
            $r = new Redis();
            $r->connect($argv[1], 0, 1.0);
            return $r;
        } catch (RedisException $e) {
            $i < 100 || throw $e;
            usleep(100_000);
        }
    }
};
$admin = $connect();
$admin->mset(['a' => 'A', 'b' => 'B']);
$ways = [
    'get' => fn ($r, $k) => $r->get($k),
    'mget' => fn ($r, $k) => $r->mget([$k])[0],
    'pipeline' => fn ($r, $k) => $r->pipeline()->get($k)->exec()[0],
    'rawCommand' => fn ($r, $k) => $r->rawCommand('GET', $k),
    'eval' => fn ($r, $k) => $r->eval("return redis.call('GET', KEYS[1])", [$k], 1),
];
foreach ($ways as $name => $way) {
    $r = $connect();
    $r->setOption(Redis::OPT_READ_TIMEOUT, 0.2);
    $admin->rawCommand('CLIENT', 'PAUSE', '1000', 'ALL');
    try {
        $text = $way($r, 'a');
    } catch (RedisException $e) {
        $text = preg_replace('/ to .*/s', '', $e->getMessage());
    }
    $admin->ping(); // which is answered after the pause, as the late command is
    echo "$name: $text; ", implode(' ', [$r->get('b'), $r->get('b'), $r->get('b')]), "\n";
}
PHP
got=$(run php8.2 -n -d extension_dir="$(echo "$tmp"/root/usr/lib/php/20*)" -d extension=igbinary -d extension=redis "$tmp/run.php" "$tmp/s")
want='get: read error on connection; B B B
mget: read error on connection; B B B
pipeline: read error on connection; B B B
rawCommand: socket error on read socket; A B B
eval: socket error on read socket; A B B'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
