#!/usr/bin/env bash
# An ExpiryCalculator of otter that returns zero or a negative duration for a new entry, because the
# value's end has passed by the time that it is stored, does not make the entry expire: the entry is
# kept without any end. Over a live entry, the old entry's end stays, so a value can outlive its own
# end until then. A calculator that subtracts the time from an absolute end has to return at least a
# nanosecond.
#
# Seen: otter 2.4.0. Entries are created with each duration, then an hour passes by the clock of the
# cache:
#
#   1ns: gone
#   0s: kept, expires never
#   -1s: kept, expires never
#   -1s over an entry with 2h: kept, expires in 1h0m0s
#
# Needs Go. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

type clock struct{ nanos atomic.Int64 }

func (c *clock) NowNano() int64                         { return c.nanos.Load() }
func (c *clock) Tick(d time.Duration) <-chan time.Time { return make(chan time.Time) }

func main() {
	for _, lives := range [][]time.Duration{{1}, {0}, {-time.Second}, {2 * time.Hour, -time.Second}} {
		now := &clock{}
		now.nanos.Store(int64(time.Hour))
		cache := otter.Must(&otter.Options[string, time.Duration]{
			MaximumSize: 10, Clock: now,
			ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, time.Duration]) time.Duration { return e.Value }),
		})
		for _, life := range lives {
			cache.Set("key", life)
		}
		now.nanos.Add(int64(time.Hour))
		name := lives[len(lives)-1].String()
		if len(lives) > 1 {
			name += " over an entry with 2h"
		}
		entry, ok := cache.GetEntry("key")
		switch {
		case !ok:
			fmt.Println(name + ": gone")
		case entry.ExpiresAtNano == math.MaxInt64:
			fmt.Println(name + ": kept, expires never")
		default:
			fmt.Println(name+": kept, expires in", time.Duration(entry.ExpiresAtNano-now.NowNano()))
		}
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go mod init expiry >log 2>&1
go get github.com/maypok86/otter/v2@v2.4.0 >>log 2>&1
got=$(go run .)
want='1ns: gone
0s: kept, expires never
-1s: kept, expires never
-1s over an entry with 2h: kept, expires in 1h0m0s'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
