package maintenance

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lease that a reload makes shorter counts until all media have the shorter one, and until those
// taken before have ended (sentence 14).
func TestSettleLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l SettleLease
		both := []*time.Duration{&l.hash, &l.beats}
		for i, c := range []struct {
			after, set, want time.Duration // set 0: no reload
			announced        []*time.Duration
		}{
			{set: 10 * time.Second, want: 10 * time.Second},
			{set: 30 * time.Second, want: 30 * time.Second}, // a longer one counts immediately
			{set: 5 * time.Second, want: 30 * time.Second, announced: both},
			{after: 20 * time.Second, set: 7 * time.Second, want: 30 * time.Second, announced: both}, // from 5 s
			{after: 9 * time.Second, set: 2 * time.Second, want: 30 * time.Second, announced: both},
			{after: time.Second, want: 7 * time.Second},
			{after: 6 * time.Second, want: 2 * time.Second},
			{set: time.Second, want: 2 * time.Second, announced: both[:1]},
			{after: time.Hour, want: 2 * time.Second, announced: both[1:]}, // leases of 2 s until now
			{after: time.Second, want: 2 * time.Second},
			{after: time.Second, want: time.Second},
		} {
			time.Sleep(c.after)
			if c.set > 0 {
				l.Set(c.set)
			}
			for _, medium := range c.announced {
				l.announced(medium, l.lease, 0)
			}
			if got, _ := l.Now(); got != c.want {
				t.Errorf("step %d: got %v, want %v", i, got, c.want)
			}
		}
	})
}

// Readers find the lease in two media. A longer one, of another worker that has stopped or of an
// earlier release, counts until both have another one, and then until it has ended.
func TestLeaseIsAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l SettleLease
		want := func(heartbeats, longest, announced time.Duration) {
			t.Helper()
			a := l.ForHeartbeats()
			if b, c := l.Now(); a != heartbeats || b != longest || c != announced {
				t.Errorf("%v in heartbeats, %v for %v; wanted %v, %v for %v", a, b, c, heartbeats, longest, announced)
			}
		}
		l.Set(10)
		want(10, 10, 0)
		l.announced(&l.hash, 5, 0) // of another worker
		want(5, 10, 0)
		l.announced(&l.beats, 0, 0) // none are sent
		time.Sleep(3 * time.Nanosecond)
		want(5, 10, 3)
		l.announced(&l.hash, 10, 30)
		time.Sleep(30 * time.Nanosecond)
		want(10, 30, 33)
		l.announced(&l.hash, Unannounced, 0) // an outage
		l.announced(&l.beats, 10, 0)
		want(10, 30, 33)
		l.announced(&l.hash, 10, 10)
		time.Sleep(29 * time.Nanosecond)
		want(10, 30, 62)
		time.Sleep(1 * time.Nanosecond)
		want(10, 10, 63)
	})
}
