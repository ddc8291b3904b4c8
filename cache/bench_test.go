package cache

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A hit in memory: what each of them costs, and that it allocates nothing.
func BenchmarkMemoryHit(b *testing.B) {
	config := Config{Memory: Memory{Size: 10_000}}.WithDefaults()
	m := newMemory(config)
	b.Cleanup(m.close)
	m.obey(verdict{open: true})
	c := &Cache{config: config, memory: m}
	keys := make([]string, 5_000)
	for i := range keys {
		keys[i] = fmt.Sprint("product:", i)
		m.put(keys[i], "a value", nil, m.mark(), time.Hour, 0, nil)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := inMemory[string](c, keys[i%len(keys)], config.Policy, 0); !ok {
			b.Fatal("the value is not there")
		}
		i++
	}
}

// One message of 1,000 patterns, and then one of an exact key: how long that key stays, and the CPU
// time until both are applied.
func BenchmarkKeyBehindPatterns(b *testing.B) {
	for _, values := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(values, " values"), func(b *testing.B) {
			config := Config{Prefix: "shop:", Memory: Memory{Size: 2 * values}}.WithDefaults()
			m := newMemory(config)
			b.Cleanup(m.close)
			m.obey(verdict{open: true})
			all := make([]protocol.Glob, protocol.MaxEntries)
			for i := range all {
				all[i], _ = protocol.CompileGlob(fmt.Sprintf("shop:gone:%d:*", i))
			}
			var gone, cpu time.Duration
			for b.Loop() {
				for i := range values {
					m.put(fmt.Sprint("product:", i), i, nil, m.mark(), time.Hour, 0, nil)
				}
				before, begun := processorTime(b), time.Now()
				patterns, done := m.evictAndLog(nil, all), make(chan struct{})
				// as apply does, concurrently with receive
				go func() { defer close(done); m.sweep(all, patterns) }()
				m.evictAndLog([]string{"shop:product:1"}, nil)
				gone += time.Since(begun)
				<-done
				cpu += processorTime(b) - before
			}
			b.ReportMetric(float64(gone.Microseconds())/float64(b.N)/1000, "gone-ms/op")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
