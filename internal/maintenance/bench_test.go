package maintenance_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
)

// The default rate has 150 looks per second: the processor time of one operation is what a worker
// uses for them each second.
func BenchmarkLooksOfASecond(b *testing.B) {
	at := single(b)
	u, err := at.k.Unlinker.Unlink(b.Context(), []keyspace.Target{{Key: "a"}})
	if err != nil {
		b.Fatal(err)
	}
	at.set("a", at.later("a"))
	keys := make([]maintenance.SpotKey, 150)
	for i := range keys {
		keys[i] = maintenance.SpotKey{Key: "a", Entity: fmt.Sprint(i)}
	}
	before := processorTime(b)
	for b.Loop() {
		at.Refill()
		at.offer(u, keys...)
		at.Tick(b.Context(), time.Second)
		at.Drop()
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// processorTime returns what this process has used.
func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
