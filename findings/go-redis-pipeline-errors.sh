#!/usr/bin/env bash
# If a pipeline of go-redis ends too early, its error also becomes that of commands whose replies
# were read before and had none. Their values stay, so Val and Err of one command contradict each
# other: whoever checks errors one by one throws away values that came. A missing key, whose reply is
# the error redis.Nil, keeps it: of the replies that came, only the values look like failures.
#
# Seen: go-redis 9.23.0 with the redis-server of Debian sid (8.0.6). A pipeline has SET, two GETs, the
# second one of a missing key, and a BLPOP that waits for longer than the context:
#
#   set "OK" timeout
#   get "1" timeout
#   get "" redis.Nil
#   blpop [] timeout
#
# Without the BLPOP, the errors are nil, nil and redis.Nil.
#
# Needs root or user namespaces, mmdebstrap and Go. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
mkdir "$tmp/root" "$tmp/client"
mmdebstrap --mode=$mode --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --format=tar --include=redis-server,libc-bin sid - 2>"$tmp/log" |
	{ tar --extract --directory "$tmp/root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
libs=$(printf '%s:' "$tmp"/root/usr/lib/*-linux-gnu*)
"$(ls "$tmp"/root/usr/lib64/ld-linux-*.so.* | head -n 1)" --library-path "$libs" "$tmp/root/usr/bin/redis-server" --port 0 --unixsocket "$tmp/s" --save '' --dir "$tmp" >>"$tmp/log" 2>&1 &
server=$!

cd "$tmp/client"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1], ContextTimeoutEnabled: true, MaxRetries: -1})
	ctx := context.Background()
	for client.Ping(ctx).Err() != nil {
		time.Sleep(50 * time.Millisecond)
	}
	for _, blocks := range []bool{false, true} {
		short, cancel := context.WithTimeout(ctx, time.Second)
		cmds, _ := client.Pipelined(short, func(p redis.Pipeliner) error {
			p.Set(short, "here", "1", 0)
			p.Get(short, "here")
			p.Get(short, "missing")
			if blocks {
				p.BLPop(short, time.Minute, "list")
			}
			return nil
		})
		cancel()
		for _, cmd := range cmds {
			text := "nil"
			switch err := cmd.Err(); {
			case errors.Is(err, redis.Nil):
				text = "redis.Nil"
			case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
				text = "timeout"
			case err != nil:
				text = err.Error()
			}
			switch cmd := cmd.(type) {
			case *redis.StatusCmd:
				fmt.Printf("%s %q %s\n", cmd.Name(), cmd.Val(), text)
			case *redis.StringCmd:
				fmt.Printf("%s %q %s\n", cmd.Name(), cmd.Val(), text)
			case *redis.StringSliceCmd:
				fmt.Printf("%s %v %s\n", cmd.Name(), cmd.Val(), text)
			}
		}
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go mod init pipeline >>"$tmp/log" 2>&1
go get github.com/redis/go-redis/v9@v9.23.0 >>"$tmp/log" 2>&1
got=$(go run . "$tmp/s")
want='set "OK" nil
get "1" nil
get "" redis.Nil
set "OK" timeout
get "1" timeout
get "" redis.Nil
blpop [] timeout'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
