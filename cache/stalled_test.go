package cache

import (
	"testing"
	"time"
)

// A stall counts as far as a command was in flight, and a tick that is little late is none.
func TestStalled(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	w := stallWatch{keep: 100 * time.Millisecond}
	w.tick(at(0), false)
	for _, ms := range []int{10, 25, 225, 235, 275} { // stalls from 35 to 225 and from 245 to 275
		w.tick(at(ms), true)
	}
	for _, c := range []struct{ from, until, want int }{
		{0, 30, 0}, {0, 100, 65}, {100, 200, 100}, {200, 300, 55}, {0, 300, 220}, {280, 300, 0},
	} {
		if got := w.stalled(at(c.from), at(c.until)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("from %d to %d ms: stalled for %v, wanted %d ms", c.from, c.until, got, c.want)
		}
	}
	w.tick(at(1000), false) // it did not watch
	w.tick(at(1030), true)
	if got := w.stalled(at(0), at(2000)); got != 20*time.Millisecond {
		t.Errorf("after a pause: stalled for %v, wanted 20ms", got)
	}
}

// A process that stalls repeatedly still detects that Redis is unavailable.
func TestStalledAndAway(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	var w stallWatch
	w.keep = time.Hour
	w.tick(at(-3000), false)
	var s silence
	var got []time.Duration
	for from := -3000; from < -2600; from += 100 { // of 100 ms, the process runs for 40
		w.tick(at(from+30), false)
		w.tick(at(from+100), true)
		got = append(got, s.lasts(at(from), at(from+100), w.stalled))
	}
	for i, sum := range got {
		if want := time.Duration(i+1) * 40 * time.Millisecond; sum != want {
			t.Errorf("after %d commands this process waited for %v, wanted %v", i+1, sum, want)
		}
	}
}
