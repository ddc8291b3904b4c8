package worker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// aPace has the default idle interval and no jitter.
func aPace(apart time.Duration) *pace {
	p := newPace(Config{WakeInterval: apart}.WithDefaults())
	p.spread = 0
	return &p
}

// The wait grows while batches find little, shrinks while they find much, and stays between 5 ms
// and the idle interval.
func TestPaceFollowsWhatBatchesFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		idle  time.Duration
		found []Result
		want  []time.Duration
	}{
		{"nothing", 50 * ms, []Result{{}, {}}, []time.Duration{50 * ms, 50 * ms}},
		{"a lone row", 50 * ms, []Result{{Claimed: 1}, {}}, []time.Duration{50 * ms, 50 * ms}},
		{"just enough", 50 * ms, []Result{{Claimed: 8}, {Claimed: 8}}, []time.Duration{50 * ms, 50 * ms}},
		{"a burst", 50 * ms, []Result{{Claimed: 400}, {Claimed: 400}, {Claimed: 400}, {Claimed: 400}},
			[]time.Duration{25500 * time.Microsecond, 13005 * time.Microsecond, 6632550 * time.Nanosecond, 5 * ms}},
		{"full pages", 50 * ms, []Result{{Claimed: 1000, Full: true}, {Claimed: 1000, Full: true}, {Claimed: 16}, {Claimed: 2}, {}, {}, {}, {}},
			[]time.Duration{0, 0, 5 * ms, 7500 * time.Microsecond, 15 * ms, 30 * ms, 50 * ms, 50 * ms}},
		{"full pages of one row", 50 * ms, []Result{{Claimed: 1, Full: true}, {Claimed: 1, Full: true}}, []time.Duration{0, 0}},
		{"a short idle interval", 2 * ms, []Result{{Claimed: 9}, {Claimed: 9}, {}}, []time.Duration{2 * ms, 2 * ms, 2 * ms}},
	} {
		p, now := newPace(Config{IdleInterval: c.idle}.WithDefaults()), time.Now()
		p.spread = 0
		var got []time.Duration
		for _, r := range c.found {
			p.beginStep(now)
			wait := p.next(now, r)
			got = append(got, wait)
			now = now.Add(wait)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: waits %v, wanted %v", c.name, got, c.want)
		}
	}
}

// A wait counts from when the step began, so a commit during a slow batch does not wait for the
// batch and the idle interval.
func TestPaceCountsFromTheBeginning(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{0: 50 * ms, 20 * ms: 30 * ms, 48 * ms: 5 * ms, time.Second: 5 * ms} {
		p, now := aPace(0), time.Now()
		p.beginStep(now)
		if got := p.next(now.Add(took), Result{Claimed: 1}); got != want {
			t.Errorf("after a batch of %s the wait is %s, wanted %s", took, got, want)
		}
	}
}

// Each hint starts a batch immediately, or after the wake interval, at any number of hints; none
// delays a poll.
func TestPaceOfHints(t *testing.T) {
	t.Parallel()
	for apart, want := range map[time.Duration][]time.Duration{
		0:           {0, 0, 0, 0},
		10 * ms:     {0, 8 * ms, 6 * ms, 0},
		time.Minute: {0, 48 * ms, 46 * ms, 30 * ms}, // when the poll is due
	} {
		p, began := aPace(apart), time.Now()
		p.beginStep(began)
		p.next(began, Result{}) // an empty poll puts nothing off
		at := began.Add(3 * ms)
		got := []time.Duration{p.hint(at)}
		p.beginStep(at)
		p.next(at, Result{Claimed: 1})
		for _, after := range []time.Duration{2 * ms, 4 * ms, 20 * ms} {
			got = append(got, p.hint(at.Add(after)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s apart: hints wait %v, wanted %v", apart, got, want)
		}
	}
}

// While hints come, there are no polls, for any number of rows.
func TestPaceRestsWhileHintsCome(t *testing.T) {
	t.Parallel()
	p, now := aPace(20*ms), time.Now()
	for range 10 {
		now = now.Add(p.hint(now))
		p.beginStep(now)
		if wait := p.next(now, Result{Claimed: 100}); wait != 50*ms {
			t.Fatalf("the next poll is in %s", wait)
		}
		now = now.Add(2 * ms)
	}
}

// A batch of a hint is open for further hints if the last batch ended a moment ago. A lone hint is
// settled immediately, and so is a poll.
func TestPaceCollectsFrequentHints(t *testing.T) {
	t.Parallel()
	p, now := aPace(0), time.Now()
	step := func(after time.Duration, hint bool) time.Duration {
		now = now.Add(after)
		if hint {
			p.hint(now)
		}
		open := p.beginStep(now)
		began := now
		now = now.Add(2 * ms)
		p.next(now, Result{Claimed: 1})
		return max(open.Sub(began), 0)
	}
	for _, c := range []struct {
		after time.Duration // the end of the last batch
		hint  bool
		want  time.Duration
	}{{0, true, 0}, {9 * ms, true, 10 * ms}, {0, true, 10 * ms}, {10 * ms, true, 0}, {time.Second, true, 0}, {ms, false, 0}, {ms, true, 10 * ms}} {
		if got := step(c.after, c.hint); got != c.want {
			t.Errorf("%s after the last batch, by a hint: %v; open for %s", c.after, c.hint, got)
		}
	}
}

// The wake interval counts from the end of a batch that was open for hints, since it may have
// claimed just then. With an interval of 10 ms and more, no batch is open.
func TestPaceKeepsTheIntervalBehindCollectedHints(t *testing.T) {
	t.Parallel()
	for apart, want := range map[time.Duration]time.Duration{4 * ms: 4 * ms, 12 * ms: 0} {
		p, now := aPace(apart), time.Now()
		open := false
		for range 2 { // the second batch follows the first one soon
			p.hint(now)
			open = !p.beginStep(now).IsZero()
			now = now.Add(12 * ms)
			p.next(now, Result{Claimed: 1})
		}
		if wait := p.hint(now); wait != want || open != (apart < collectTime) {
			t.Errorf("interval %s: open %v, then the next hint waits %s, want %s", apart, open, wait, want)
		}
	}
}

// A load is the result of commits at a rate.
type load struct {
	rows, batches, polls int
	// from a commit to the step that finds it; all of them together
	longest, waited time.Duration
}

// carry simulates a minute of commits at random times.
func carry(p *pace, rate float64, progress time.Duration) (l load) {
	random := rand.New(rand.NewPCG(7, 7))
	gap := func() time.Duration { return time.Duration(random.ExpFloat64() / rate * float64(time.Second)) }
	begin := time.Now()
	now, commit := begin, begin.Add(gap())
	for now.Sub(begin) < time.Minute {
		p.beginStep(now)
		l.polls++
		found := 0
		for ; !commit.After(now); commit = commit.Add(gap()) {
			l.longest = max(l.longest, now.Sub(commit))
			l.waited += now.Sub(commit)
			found++
		}
		if found > 0 {
			l.batches++
			l.rows += found
			now = now.Add(progress)
		}
		now = now.Add(p.next(now, Result{Claimed: found}))
	}
	return l
}

// At a light load a batch has several commits, none waits longer than the idle interval, and polls
// are as rare as when idle. At a heavier load the wait is short.
func TestPaceOfALoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		rows  float64 // least mean of a batch
		polls int     // a second, at most
		mean  time.Duration
	}{
		{rate: 20, rows: 1.5, polls: 20, mean: 27 * ms},
		{rate: 100, rows: 4.5, polls: 22, mean: 27 * ms},
		{rate: 500, rows: 8, polls: 60, mean: 10 * ms},
		{rate: 5000, rows: 20, polls: 200, mean: 4 * ms},
	} {
		l := carry(aPace(0), c.rate, 2*ms)
		rows, mean := float64(l.rows)/float64(l.batches), l.waited/time.Duration(l.rows)
		if rows < c.rows || l.polls > 60*c.polls+1 || mean > c.mean || l.longest > 50*ms {
			t.Errorf("at %v/s a batch carries %.2f rows, there are %d polls a minute, and a commit waits for %s at the mean and for %s at most",
				c.rate, rows, l.polls, mean, l.longest)
		}
	}
}
