package keyspace_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// BenchmarkUnlink unlinks 10,000 keys with their leases through a Keyspace. The baseline is a bare
// pipeline of UNLINKs with 500 names each and prepared arguments. It reports keys per second of
// both, and the ratio of their times. Both alternate, so a busy machine slows both.
func BenchmarkUnlink(b *testing.B) {
	const size = 10_000
	server := testenv.OwnRedis(b)
	k := open(b, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour})
	keys := names(size, "zahraah:prod:product:%d")
	held := leases(keys...)
	all := targets(keys...)
	var commands [][]any
	for i := 0; i < size; i += 250 {
		args := []any{"unlink"}
		for j := i; j < i+250; j++ {
			args = append(args, held[j], keys[j])
		}
		commands = append(commands, args)
	}
	floor := func() {
		_, err := k.Nodes.Client().Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for _, args := range commands {
				p.Do(b.Context(), args...)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	timed := func(f func()) time.Duration {
		b.StopTimer()
		fill(b, k.Nodes.Client(), keys...)
		fill(b, k.Nodes.Client(), held...)
		b.StartTimer()
		start := time.Now()
		f()
		return time.Since(start)
	}
	var ours, bare time.Duration
	for b.Loop() {
		ours += timed(func() { mustUnlink(b, k, all) })
		bare += timed(floor)
	}
	b.ReportMetric(float64(size*b.N)/ours.Seconds(), "keys/s")
	b.ReportMetric(float64(size*b.N)/bare.Seconds(), "floor-keys/s")
	b.ReportMetric(ours.Seconds()/bare.Seconds(), "x-floor")
}

// BenchmarkSweep makes one sweep of 20 patterns over 100,000 keys without a match. The baseline is
// a bare SCAN of the same keys.
func BenchmarkSweep(b *testing.B) {
	const size = 100_000
	server := testenv.OwnRedis(b)
	k := open(b, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour, SweepShare: 1})
	fill(b, k.Nodes.Client(), names(size, "zahraah:prod:customer:%d")...)
	patterns := sweepPatterns()
	var ours, bare time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := k.Sweeper.Sweep(b.Context(), patterns, nil); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		start = time.Now()
		scan := k.Nodes.Client().Scan(b.Context(), 0, "", 1000).Iterator()
		for scan.Next(b.Context()) {
		}
		if err := scan.Err(); err != nil {
			b.Fatal(err)
		}
		bare += time.Since(start)
	}
	b.ReportMetric(float64(size*b.N)/ours.Seconds(), "keys/s")
	b.ReportMetric(ours.Seconds()/bare.Seconds(), "x-bare-scan")
}
