package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A heard is one event of a subscription, some periods after the previous one.
type heard struct {
	after float64
	what  func(h *subscriptionState, now time.Time) verdict
	empty bool // expected result
	open  bool // expected result
}

func subscribed(h *subscriptionState, now time.Time) verdict { return h.subscribe(now) }
func lost(h *subscriptionState, now time.Time) verdict       { return h.lose(now, errors.New("cut")) }
func pong(h *subscriptionState, now time.Time) verdict       { return h.answer(now, now) }
func pongOf(age float64) func(*subscriptionState, time.Time) verdict { // of a ping so many periods ago
	return func(h *subscriptionState, now time.Time) verdict {
		return h.answer(now.Add(-time.Duration(age*float64(time.Second))), now)
	}
}
func ticked(h *subscriptionState, now time.Time) verdict { return h.tick(now) }
func unreadable(h *subscriptionState, now time.Time) verdict {
	return h.misread(now, errors.New("no JSON"))
}

// beat returns a heartbeat of a worker of outbox "s"; message has only keys.
func beat(epoch string, seq uint64, with ...func(*protocol.Beat)) func(*subscriptionState, time.Time) verdict {
	return func(h *subscriptionState, now time.Time) verdict {
		b := &protocol.Beat{Source: "s"}
		for _, f := range with {
			f(b)
		}
		return h.message(protocol.Message{Epoch: epoch, Seq: seq, Beat: b}, now)
	}
}

func message(epoch string, seq uint64) func(*subscriptionState, time.Time) verdict {
	return func(h *subscriptionState, now time.Time) verdict {
		return h.message(protocol.Message{Epoch: epoch, Seq: seq, Keys: []string{"k"}}, now)
	}
}

func first(b *protocol.Beat)   { b.First = true }
func goodbye(b *protocol.Beat) { b.Last = true }
func movedAway(b *protocol.Beat) {
	b.Moved = "elsewhere"
}
func of(source string) func(*protocol.Beat) { return func(b *protocol.Beat) { b.Source = source } }
func follows(epoch string, seq uint64) func(*protocol.Beat) {
	return func(b *protocol.Beat) { b.First, b.After, b.AfterSeq = true, epoch, seq }
}

// opened are the events that open a subscription, with epoch "a" at number 6.
var opened = []heard{
	{0, subscribed, false, false},
	{0.5, beat("a", 5), true, false},
	{0.9, ticked, false, false},
	{0.6, beat("a", 6), false, true},
}

func TestSubscriptionState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sources []string
		mute    bool    // pings are not answered by themselves
		after   []heard // what follows opened
	}{
		"lost":                         {after: []heard{{0.1, lost, true, false}, {5, lost, false, false}, {0, ticked, false, false}}},
		"a second subscription":        {after: []heard{{0.1, subscribed, true, false}}},
		"subscribed again":             {after: []heard{{0.1, lost, true, false}, {1, subscribed, true, false}, {0.5, beat("a", 9), true, false}, {1, beat("a", 10), false, true}}},
		"a gap":                        {after: []heard{{0.5, message("a", 8), true, false}, {0.5, beat("a", 9), false, false}, {0.5, beat("a", 10), false, true}}},
		"a copy":                       {after: []heard{{0.5, message("a", 6), false, true}, {0, message("a", 3), false, true}, {0, message("a", 7), false, true}}},
		"the middle of an epoch":       {after: []heard{{0.5, message("b", 7), true, false}}},
		"the middle, with a beat":      {after: []heard{{0.5, beat("b", 7), true, false}}},
		"a new worker":                 {after: []heard{{0.5, beat("b", 1, first), false, true}, {0, message("b", 2), false, true}}},
		"a first message is number 1":  {after: []heard{{0.5, message("b", 1), false, true}}},
		"silence":                      {after: []heard{{2.9, pong, false, true}, {0.2, pong, true, false}, {1, pong, false, false}, {0.5, beat("a", 7), true, false}, {1, beat("a", 8), false, true}}},
		"one of two is silent":         {after: []heard{{0.5, beat("b", 1, first), false, true}, {1, pong, false, true}, {1, beat("b", 2), false, true}, {0.6, beat("b", 3), true, false}, {1, beat("b", 4), false, true}}},
		"keys are no sign of life":     {after: []heard{{1, message("a", 7), false, true}, {1, message("a", 8), false, true}, {1.1, message("a", 9), true, false}}},
		"goodbye of the last":          {after: []heard{{0.5, beat("a", 7, goodbye), false, true}, {2.4, ticked, false, true}, {0.2, ticked, true, false}, {1, ticked, false, false}}},
		"replaced after its goodbye":   {after: []heard{{0.5, beat("a", 7, goodbye), false, true}, {2, beat("b", 1, first), false, true}, {0.4, beat("b", 2), false, true}, {1, pong, false, true}}},
		"workers that come and go":     {after: []heard{{1, beat("a", 7, goodbye), false, true}, {0.5, beat("b", 1, first), false, true}, {0.5, beat("b", 2, goodbye), false, true}, {0.5, beat("c", 1, first), false, true}, {0.6, beat("c", 2, goodbye), true, false}, {1, beat("d", 1, first), false, false}, {0.5, beat("d", 2), false, true}}},
		"a rolling deployment":         {after: []heard{{0.2, beat("b", 1, first), false, true}, {0.2, beat("a", 7, goodbye), false, true}, {2.9, beat("b", 2), false, true}, {1, pong, false, true}, {1, beat("b", 3), false, true}}},
		"an epoch follows":             {after: []heard{{0.2, beat("b", 1, follows("a", 6)), false, true}, {2.9, beat("b", 2), false, true}, {2.9, pong, false, true}}},
		"of which less was heard":      {after: []heard{{0.2, beat("b", 1, follows("a", 7)), true, false}}},
		"of which nothing was heard":   {after: []heard{{0.2, beat("b", 1, follows("z", 1)), true, false}}},
		"no pong":                      {mute: true, after: []heard{{1, beat("a", 7), false, true}, {1, beat("a", 8), false, true}, {1.1, beat("a", 9), true, false}, {0.5, beat("a", 10), true, false}, {0, pong, false, false}, {1, pong, false, true}}},
		"a late pong":                  {mute: true, after: []heard{{1, beat("a", 7), false, true}, {1, beat("a", 8), false, true}, {0.8, pongOf(2.5), false, true}, {0.4, beat("a", 9), false, true}, {0.2, ticked, true, false}}},
		"unreadable":                   {after: []heard{{0.1, unreadable, true, false}, {0.5, beat("a", 7), false, false}, {0.6, ticked, false, true}}},
		"moved":                        {after: []heard{{0.1, beat("a", 7, movedAway), true, false}, {0, lost, true, false}, {0, subscribed, true, false}, {0.5, beat("a", 8, movedAway), true, false}, {0.9, ticked, false, false}, {0.2, beat("a", 9, movedAway), false, true}}},
		"another source":               {sources: []string{"s", "other"}, after: []heard{{0, ticked, false, false}, {0.1, beat("o", 1, first, of("other")), false, false}, {0.1, beat("o", 2, of("other")), false, true}, {0.1, beat("o", 3, goodbye, of("other")), false, true}, {2, beat("a", 7), false, true}, {1, beat("a", 8), true, false}}},
		"a source that nobody needs":   {after: []heard{{0.1, beat("o", 1, first, of("other")), false, true}, {0.1, beat("o", 2, goodbye, of("other")), false, true}}},
		"the array format has numbers": {after: []heard{{0.1, message("", 0), false, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := c.sources
			if sources == nil {
				sources = []string{"s"}
			}
			h, now := newHearing(Memory{Period: time.Second, Sources: sources}), time.Unix(1_700_000_000, 0)
			for i, e := range append(append([]heard{}, opened...), c.after...) {
				now = now.Add(time.Duration(e.after * float64(time.Second)))
				if h.subscribed && (!c.mute || i < len(opened)) {
					h.pong = now
				}
				v := e.what(h, now)
				wantOpen := e.open && (c.sources == nil || i >= len(opened))
				if v.empty != e.empty || v.open != wantOpen || (v.why == nil) != v.open {
					t.Fatalf("event %d: empty %v, open %v (%v), wanted %v, %v", i, v.empty, v.open, v.why, e.empty, wantOpen)
				}
			}
		})
	}
}

// Without heartbeats a subscription alone opens, where that is accepted; what may be lost empties
// all the same.
func TestSubscriptionWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	h, now := newHearing(Memory{Period: time.Second, MaxStaleness: time.Second}), time.Unix(1_700_000_000, 0)
	for i, e := range []heard{
		{0, ticked, false, false}, {0, subscribed, false, false}, {0, ticked, false, true}, {1, message("", 0), false, true}, {1, message("a", 7), true, true},
		{0.5, message("a", 8), false, true}, {0.1, message("a", 10), true, true}, {0.1, pong, false, true}, {0.1, lost, true, false},
	} {
		now = now.Add(time.Duration(e.after * float64(time.Second)))
		if v := e.what(h, now); v.empty != e.empty || v.open != e.open {
			t.Fatalf("event %d: empty %v, open %v (%v)", i, v.empty, v.open, v.why)
		}
	}
}

// The model has workers that publish the keys that they unlink, pause, die, send a final message
// and are replaced, and a network that loses messages, delays nothing, and breaks. An L1 that
// follows its state never returns a value that was unlinked longer ago than the bound: silence
// for three periods, and one tick.
func TestSubscriptionModel(t *testing.T) {
	t.Parallel()
	const runs = 3000
	opens, losses := 0, 0
	for seed := range uint64(runs) {
		o, l := modelRun(t, rand.New(rand.NewPCG(seed, 1)))
		opens, losses = opens+o, losses+l
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d runs, open at %d steps, %d messages lost", runs, opens, losses)
	if opens < runs*10 || losses < runs {
		t.Errorf("the model does too little: open at %d steps, %d messages lost", opens, losses)
	}
}

// A modelWorker publishes one epoch.
type modelWorker struct {
	epoch   string
	seq     uint64
	healthy bool
	before  *modelWorker
}

func modelRun(t *testing.T, r *rand.Rand) (opens, losses int) {
	const step, period = 250 * time.Millisecond, time.Second
	h, now := newHearing(Memory{Period: period, Sources: []string{"s"}}), time.Unix(1_700_000_000, 0)
	h.subscribe(now)
	epochs := 0
	start := func(before *modelWorker) *modelWorker {
		epochs++
		return &modelWorker{epoch: fmt.Sprint("e", epochs), healthy: true, before: before}
	}
	worker := start(nil)
	var missed time.Time // since when a value in memory is wrong, zero for right
	deliver := func(m protocol.Message, evicts, lose bool) {
		if lose {
			losses++
			if evicts && missed.IsZero() {
				missed = now
			}
			return
		}
		if v := h.message(m, now); v.empty || !v.open {
			missed = time.Time{}
		}
	}
	for i := range 200 {
		now = now.Add(step)
		lose := r.IntN(20) == 0
		send := func(b *protocol.Beat) {
			worker.seq++
			if b != nil && worker.seq == 1 {
				b.First = true
				if worker.before != nil {
					b.After, b.AfterSeq = worker.before.epoch, worker.before.seq
				}
			}
			deliver(protocol.Message{Epoch: worker.epoch, Seq: worker.seq, Beat: b}, b == nil, lose)
		}
		if worker.healthy && i%4 == 0 {
			send(&protocol.Beat{Source: "s"})
		}
		switch r.IntN(40) {
		case 0, 1, 2, 3:
			if worker.healthy && worker.seq > 0 {
				send(nil) // an unlinked key
			}
		case 4:
			if worker.healthy && worker.seq > 0 {
				send(&protocol.Beat{Source: "s", Last: true})
				worker = start(nil)
			}
		case 5:
			if worker.seq > 0 {
				worker = start(worker) // on another node
			}
		case 6:
			worker.healthy = !worker.healthy
		case 7:
			if v := h.lose(now, errors.New("cut")); v.empty || !v.open {
				missed = time.Time{}
			}
			h.subscribe(now)
		}
		v := h.answer(now, now)
		if v.empty || !v.open {
			missed = time.Time{}
		}
		if v.open {
			opens++
			if !missed.IsZero() && now.Sub(missed) > (silentPeriods+1)*period {
				t.Errorf("step %d: a message that was lost %v ago has not been noticed", i, now.Sub(missed))
				return opens, losses
			}
		}
	}
	return opens, losses
}

func behind(millis int64) func(*protocol.Beat) { return func(b *protocol.Beat) { b.Behind = millis } }

// The lag of an outbox grows between heartbeats. The worker with the latest position counts, and
// one without a position leaves the lag unknown. It closes L1 only if that is configured.
func TestSubscriptionToAnOutboxThatIsBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after []heard
		late  []bool // expected after each
	}{
		"not behind":         {[]heard{{0.5, beat("a", 7, behind(4400)), false, true}, {0.5, pong, false, true}}, []bool{false, false}},
		"behind":             {[]heard{{0.5, beat("a", 7, behind(5100)), false, true}, {1, beat("a", 8, behind(6100)), false, true}, {1, beat("a", 9, behind(100)), false, true}}, []bool{true, true, false}},
		"more by and by":     {[]heard{{0.5, beat("a", 7, behind(4000)), false, true}, {0.9, pong, false, true}, {0.2, pong, false, true}}, []bool{false, false, true}},
		"another knows":      {[]heard{{0.5, beat("b", 1, first), false, true}, {0.1, beat("b", 2, behind(100)), false, true}, {0.4, beat("a", 7, behind(60_000)), false, true}}, []bool{false, false, false}},
		"an older worker":    {[]heard{{0.5, beat("a", 7), false, true}, {1, beat("a", 8, behind(-1)), false, true}}, []bool{false, false}},
		"only older worker":  {[]heard{{0.5, beat("a", 7, behind(9000)), false, true}, {1, beat("a", 8), false, true}, {1, beat("a", 9), false, true}, {1.1, beat("a", 10), false, true}}, []bool{true, true, true, false}},
		"of nobody's outbox": {[]heard{{0.1, beat("o", 1, first, of("other")), false, true}, {0.1, beat("o", 2, of("other"), behind(60_000)), false, true}}, []bool{false, false}},
		"proof of the first": {[]heard{{0.5, beat("b", 1, first, behind(60_000)), false, true}}, []bool{false}},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", strict ", strict), func(t *testing.T) {
				t.Parallel()
				config := Memory{Period: time.Second, Sources: []string{"s"}, MaxBehind: 5 * time.Second, CloseBehind: strict}
				h, now := newHearing(config), time.Unix(1_700_000_000, 0)
				for i, e := range append(append([]heard{}, opened...), c.after...) {
					now = now.Add(time.Duration(e.after * float64(time.Second)))
					if h.subscribed {
						h.pong = now
					}
					v := e.what(h, now)
					if i < len(opened) {
						continue
					}
					late := c.late[i-len(opened)]
					if v.empty || v.open == (late && strict) || (v.late != nil) != (late && !strict) {
						t.Errorf("event %d: empty %v, open %v (%v), late %v, wanted late %v", i, v.empty, v.open, v.why, v.late, late)
					}
					if late && !errors.Is(errors.Join(v.late, v.why), ErrBehind) {
						t.Errorf("event %d: %v, %v", i, v.late, v.why)
					}
				}
			})
		}
	}
}
