package limit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// Max attempts are allowed, the next one is refused and told how long to wait, refused ones change
// nothing, and other subjects are not concerned.
func TestTake(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
			for i := 1; i <= most; i++ {
				d := take(t, l, "+49 30 1234567")
				wait := d.RetryAfter > 0
				if !d.Allowed || d.Remaining != most-i || wait != (i == most) {
					t.Fatalf("attempt %d: %+v", i, d)
				}
			}
			before := client.Dump(t.Context(), "zahraah:limit:+49 30 1234567").Val()
			var waits []time.Duration
			for range 3 {
				d := take(t, l, "+49 30 1234567")
				if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 || d.RetryAfter > time.Hour+time.Hour/time.Duration(most)+time.Minute {
					t.Fatalf("%+v", d)
				}
				waits = append(waits, d.RetryAfter)
			}
			if after := client.Dump(t.Context(), "zahraah:limit:+49 30 1234567").Val(); after != before {
				t.Error("refused attempts have left something")
			}
			if !slices.IsSortedFunc(waits, func(a, b time.Duration) int { return int(b - a) }) {
				t.Errorf("refused attempts make the wait longer: %v", waits)
			}
			if d := take(t, l, "+49 30 1234568"); !d.Allowed || d.Remaining != most-1 {
				t.Errorf("another subject: %+v", d)
			}
			if got, want := l.Statistics(), (limit.Statistics{Allowed: uint64(most) + 1, Refused: 3}); got != want {
				t.Errorf("%+v, wanted %+v", got, want)
			}
			testenv.Must(t, l.Forget(t.Context(), "+49 30 1234567"))
			if d := take(t, l, "+49 30 1234567"); !d.Allowed || d.Remaining != most-1 {
				t.Errorf("forgotten: %+v", d)
			}
		})
	}
}

// Many at once in two processes' clients: exactly Max get through.
func TestTakeAtOnce(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			url := testenv.Redis(t).URL
			var allowed atomic.Int64
			var group sync.WaitGroup
			for range 2 {
				l := newLimiter(t, limit.Config{Redis: clientAt(t, url), Max: most, Window: time.Hour})
				for range 20 {
					group.Go(func() {
						for range 10 {
							d, err := l.Take(t.Context(), "s")
							if err != nil || d.Unsure != nil {
								t.Error(err, d.Unsure)
							}
							if d.Allowed {
								allowed.Add(1)
							}
						}
					})
				}
			}
			group.Wait()
			if n := allowed.Load(); n != int64(most) {
				t.Errorf("%d of %d", n, most)
			}
		})
	}
}

// An attempt has happened somewhere between two times of this process' clock.
type attempt struct {
	from, to time.Time
	allowed  bool
}

// The window slides: under attempts at random none has more than it may, and none is refused that
// has room, as far as this process can tell when Redis had them.
func TestWindowSlides(t *testing.T) {
	t.Parallel()
	for form, c := range map[string]struct{ max, most, least int }{
		"exact":   {5, 5, 5},
		"counted": {31, 61, 16}, // what may be in a window at most, and must be in two windows before one is refused
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			const window = 100 * time.Millisecond
			client := clientAt(t, testenv.Redis(t).URL)
			l := newLimiter(t, limit.Config{Redis: client, Max: c.max, Window: window})
			var list []attempt
			refused := 0
			for began := time.Now(); len(list) < 3000 && (time.Since(began) < 3*time.Second || refused < 5); {
				from := time.Now()
				d := take(t, l, "s")
				list = append(list, attempt{from, time.Now(), d.Allowed})
				if !d.Allowed {
					refused++
					if rand.IntN(3) > 0 { // as told
						<-time.After(d.RetryAfter)
					}
				}
			}
			if refused == 0 {
				t.Fatal("none was refused")
			}
			span := window
			if form == "counted" {
				span = 2 * window
			}
			for i, a := range list {
				surely, perhaps := 0, 0
				for _, other := range list[:i+1] {
					if other.allowed && a.to.Sub(other.from) < window {
						surely++
					}
				}
				for _, other := range list[:i] {
					if other.allowed && a.from.Sub(other.to) <= span {
						perhaps++
					}
				}
				if a.allowed && surely > c.most {
					t.Fatalf("attempt %d: %d in a window", i, surely)
				}
				if !a.allowed && perhaps < c.least {
					t.Fatalf("attempt %d is refused: %d before it", i, perhaps)
				}
			}
			t.Logf("%d attempts, %d refused", len(list), refused)
		})
	}
}

// Whoever waits as long as he is told gets through, if nobody else comes.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: 500 * time.Millisecond})
			for range 3 {
				d := take(t, l, "s")
				for d.Allowed {
					d = take(t, l, "s")
				}
				<-time.After(d.RetryAfter)
				if d := take(t, l, "s"); !d.Allowed {
					t.Errorf("refused again: %+v", d)
				}
			}
		})
	}
}

// The same id counts once, at any distance in the exact form, and behind three others in the other
// one.
func TestTakeOnce(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, limit.Config{Redis: clientAt(t, testenv.Redis(t).URL), Max: most, Window: time.Hour})
			once := func(id string, remaining int) {
				t.Helper()
				d, err := l.TakeOnce(t.Context(), "s", id)
				testenv.Must(t, err)
				testenv.Must(t, d.Unsure)
				if !d.Allowed || d.Remaining != remaining {
					t.Errorf("%s: %+v", id, d)
				}
			}
			once("a", most-1)
			once("a", most-1)
			once("b", most-2)
			once("c", most-3)
			once("a", most-3)
			for i := range most - 3 {
				once(fmt.Sprint(i), most-4-i)
			}
			last := fmt.Sprint(most - 4)
			if most == 3 {
				last = "a"
			}
			once(last, 0) // though there is no room
		})
	}
}

// Another Max or Window keeps the count, but a Max of 20 or less begins at zero after a larger one.
func TestLimitsChange(t *testing.T) {
	t.Parallel()
	client := clientAt(t, testenv.Redis(t).URL)
	with := func(most int, window time.Duration) limit.Decision {
		t.Helper()
		return take(t, newLimiter(t, limit.Config{Redis: client, Max: most, Window: window}), "s")
	}
	for range 10 {
		with(10, time.Hour)
	}
	if d := with(3, time.Hour); d.Allowed || d.RetryAfter < 59*time.Minute {
		t.Errorf("a lower limit: %+v", d)
	}
	if d := with(11, 2*time.Hour); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a higher limit: %+v", d)
	}
	if d := with(200, time.Hour); !d.Allowed || d.Remaining != 188 {
		t.Errorf("two counters: %+v", d)
	}
	for range 150 {
		with(200, time.Hour)
	}
	if d := with(101, 2*time.Hour); d.Allowed || d.RetryAfter < 2*time.Hour {
		t.Errorf("a lower limit of two counters: %+v", d)
	}
	if d := with(20, time.Hour); !d.Allowed || d.Remaining != 19 {
		t.Errorf("each attempt again: %+v", d)
	}
}

// A clock that was set back holds a subject up for one window at most: its attempts count as of
// now.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form+" and later", func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
			for range most {
				take(t, l, "s")
			}
			setAhead(t, client, "zahraah:limit:s", 24*time.Hour)
			soon := newLimiter(t, limit.Config{Redis: client, Max: most, Window: 50 * time.Millisecond})
			testenv.Eventually(t, "room in the window", func() bool { return take(t, soon, "s").Allowed })
		})
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			const window = time.Minute
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: window})
			for range most {
				take(t, l, "s")
			}
			setAhead(t, client, "zahraah:limit:s", 24*time.Hour)
			if d := take(t, l, "s"); d.Allowed || d.RetryAfter > window+window/2 {
				t.Errorf("%+v", d)
			}
			if left := client.PTTL(t.Context(), "zahraah:limit:s").Val() - time.Second; form == "exact" && left > window || left > 2*window {
				t.Errorf("it stays for %v", left)
			}
		})
	}
}
