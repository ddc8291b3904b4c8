package keyspace_test

import (
	"math"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// The duration of a SCAN converges to some 250 microseconds at any cost of a bucket, and the pauses
// leave Redis the other three quarters of its time.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bucket time.Duration
		count  int64 // that it comes to
	}{
		{100 * time.Nanosecond, 1000}, // never more
		{500 * time.Nanosecond, 500},
		{2500 * time.Nanosecond, 100},
		{10 * time.Microsecond, 25},
		{time.Millisecond, 10}, // never less
	} {
		p := keyspace.NewPace(0.25)
		var busy, rest time.Duration
		for range 200 {
			took := time.Duration(p.Count()) * c.bucket
			p.Scanned(took)
			busy += took
			for owed := p.Owed(); owed > 0; owed = p.Owed() {
				p.Rested(owed)
				rest += owed
			}
		}
		if n := p.Count(); math.Abs(float64(n-c.count)) > float64(c.count)/10 {
			t.Errorf("%v a bucket: a SCAN looks at %d, want some %d", c.bucket, n, c.count)
		}
		if share := busy.Seconds() / (busy + rest).Seconds(); math.Abs(share-0.25) > 0.001 {
			t.Errorf("%v a bucket: it takes %.3f of the time", c.bucket, share)
		}
	}
}

// One answer that was slow for other reasons changes little; a Redis that has become slow is
// noticed within a second's worth of SCANs.
func TestPaceIsCalm(t *testing.T) {
	t.Parallel()
	p := keyspace.NewPace(0.25)
	scan := func(bucket time.Duration) { p.Scanned(time.Duration(p.Count()) * bucket) }
	for range 100 {
		scan(500 * time.Nanosecond)
	}
	scan(2 * time.Microsecond)
	if n := p.Count(); n < 400 {
		t.Errorf("after one slow answer a SCAN looks at %d, want 400 or more", n)
	}
	for range 100 {
		scan(2 * time.Microsecond)
	}
	if n := p.Count(); n < 110 || n > 140 {
		t.Errorf("a SCAN of a slow Redis looks at %d, want some 125", n)
	}
	scan(10 * time.Second)
	if owed := p.Owed(); owed > time.Second {
		t.Errorf("it would rest for %v after one very slow answer", owed)
	}
}

// Without a budget there are no pauses.
func TestPaceUnbounded(t *testing.T) {
	t.Parallel()
	p := keyspace.NewPace(1)
	p.Scanned(time.Second)
	if p.Count() != 1000 || p.Owed() != 0 {
		t.Errorf("count %d, owed %v", p.Count(), p.Owed())
	}
}
