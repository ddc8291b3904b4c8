package cache

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/protocol"
)

// silentPeriods is how many periods without a sign of life mean that there is none.
const silentPeriods = 3

// A hearing decides from the events of a subscription whether every invalidation arrives. It is a
// state machine without clocks or goroutines: each event comes with its time, and the result tells
// L1 whether to empty, open or close.
//
//	          subscribed            a period, heartbeats of all sources
//	closed ───────────────► listening ───────────────────────► open
//	   ▲ lost                   ▲   └── doubt: again from here     │ doubt: gap, middle, silence,
//	   └────────────────────────┴──────────────────────────────────┘ no pong, unreadable, moved
type hearing struct {
	period   time.Duration
	sources  []string // their workers must send heartbeats
	channels []string // to subscribe to: the configured one, and those that workers have moved to
	// deaf accepts a bounded staleness instead of heartbeats: only the subscription must exist.
	deaf bool

	subscribed bool
	since      time.Time // of the subscription or the latest possible gap
	pong       time.Time // when the latest ping was sent that was answered
	why        error     // for the latest possible gap
	epochs     map[string]*heardEpoch
	// the latest heartbeat of each source that proves that its outbox is looked into
	beats    map[string]time.Time
	progress progress // of the outboxes
	strict   bool     // closed while one is behind
}

// A heardEpoch is one life of a worker.
type heardEpoch struct {
	seq uint64 // the latest number
	// the latest heartbeat, zero if there is none; after the first one, silence is a possible gap
	beat time.Time
	// the outbox whose heartbeats its worker withholds, and why; "" if it does not
	source, withheld string
}

// A verdict is the instruction for L1: whether to empty it, and whether it is open from now on. why
// is the reason if it is closed, late the reason if its outbox is behind.
type verdict struct {
	empty, open bool
	why, late   error
}

func newHearing(config Memory) *hearing {
	return &hearing{
		period: config.Period, sources: config.Sources, channels: []string{config.Channel}, deaf: config.MaxStaleness > 0,
		epochs: map[string]*heardEpoch{}, beats: map[string]time.Time{},
		progress: newProgress(config), strict: config.CloseBehind,
	}
}

// subscribe handles a new subscription. After the first one, it means that the connection was lost.
func (h *hearing) subscribe(now time.Time) verdict {
	again := !h.since.IsZero()
	h.subscribed, h.pong = true, now
	h.epochs, h.beats = map[string]*heardEpoch{}, map[string]time.Time{}
	v := h.doubt(now, "just subscribed")
	v.empty = again
	return v
}

// lose handles the end of a subscription.
func (h *hearing) lose(now time.Time, err error) verdict {
	stood := h.subscribed
	h.subscribed, h.epochs, h.beats = false, map[string]*heardEpoch{}, map[string]time.Time{}
	v := h.doubt(now, "not subscribed: %w", err)
	v.empty = stood // another failed attempt is not another loss
	return v
}

// answer returns a pong to the ping that was sent at asked: Redis has sent all that it published
// before.
func (h *hearing) answer(asked, now time.Time) verdict {
	h.pong = asked
	return h.tick(now)
}

// misread returns a message that cannot be decoded.
func (h *hearing) misread(now time.Time, err error) verdict {
	return h.doubt(now, "a message cannot be read: %w", err)
}

// message handles a message.
func (h *hearing) message(m protocol.Message, now time.Time) verdict {
	if m.Epoch == "" { // the array format has no numbers
		return h.tick(now)
	}
	e, known := h.epochs[m.Epoch]
	var doubt verdict
	switch {
	case known && m.Seq <= e.seq: // a copy
		return h.tick(now)
	case known && m.Seq > e.seq+1:
		doubt = h.doubt(now, "messages %d to %d of epoch %s are missing", e.seq+1, m.Seq-1, m.Epoch)
	case !known:
		e = &heardEpoch{}
		h.epochs[m.Epoch] = e
		if first := m.Seq == 1 || m.Beat != nil && m.Beat.First; !first {
			doubt = h.doubt(now, "epoch %s began before the first message received", m.Epoch)
		} else if m.Beat != nil && m.Beat.After != "" {
			doubt = h.replace(m.Beat, now)
		}
	}
	e.seq = m.Seq
	if b := m.Beat; b != nil {
		e.beat, e.source, e.withheld = now, b.Source, b.Withheld
		if !b.First && !b.Last { // a worker sends those whether or not it can look into the outbox
			h.beats[b.Source] = now
			h.progress.note(b, now)
		}
		if b.Last {
			delete(h.epochs, m.Epoch)
		}
		if b.Moved != "" && !slices.Contains(h.channels, b.Moved) {
			// It publishes on both until it is restarted, and its successor on that one alone.
			// Others have yet to move.
			h.channels = append(h.channels, b.Moved)
			doubt = h.doubt(now, "a worker has moved to channel %q", b.Moved)
		}
	}
	v := h.tick(now)
	v.empty = v.empty || doubt.empty
	return v
}

// replace returns the first message of an epoch that follows another one of the same worker.
func (h *hearing) replace(b *protocol.Beat, now time.Time) (doubt verdict) {
	before, known := h.epochs[b.After]
	delete(h.epochs, b.After)
	if known && before.seq >= b.AfterSeq {
		return verdict{}
	}
	return h.doubt(now, "fewer messages of epoch %s were received than sent", b.After)
}

// tick handles the passing of time. Call it several times per period.
func (h *hearing) tick(now time.Time) verdict {
	empty := false
	limit := silentPeriods * h.period
	if h.subscribed && now.Sub(h.pong) > limit {
		empty = h.doubt(now, "no pong for %v", limit).empty
	}
	for name, e := range h.epochs {
		if !e.beat.IsZero() && now.Sub(e.beat) > limit {
			delete(h.epochs, name)
			empty = h.doubt(now, "no heartbeat of epoch %s for %v", name, limit).empty
		}
	}
	for source, beat := range h.beats {
		if now.Sub(beat) > limit {
			delete(h.beats, source)
			if slices.Contains(h.sources, source) {
				empty = h.doubt(now, "no heartbeat of outbox %q for %v", source, limit).empty
			}
		}
	}
	if err := h.closed(now); err != nil {
		return verdict{empty: empty, why: err}
	}
	late := h.progress.late(h.sources, now)
	if late != nil && h.strict {
		return verdict{empty: empty, why: fmt.Errorf("nothing is given out from memory: %w", late)}
	}
	return verdict{empty: empty, open: true, late: late}
}

// doubt restarts listening: a message may have been missed.
func (h *hearing) doubt(now time.Time, format string, args ...any) verdict {
	h.since = now
	h.why = fmt.Errorf("nothing is given out from memory: "+format, args...)
	return verdict{empty: true, why: h.why}
}

// closed returns why the memory must be closed, or nil.
func (h *hearing) closed(now time.Time) error {
	switch {
	case !h.subscribed, h.since.IsZero():
		if h.why == nil {
			return errNotListening
		}
		return h.why
	case h.deaf:
		return nil
	case now.Sub(h.since) < h.period, now.Sub(h.pong) > silentPeriods*h.period:
		return h.why
	}
	for _, source := range h.sources {
		if h.beats[source].IsZero() {
			for _, e := range h.epochs {
				if e.source == source && e.withheld != "" {
					return fmt.Errorf("nothing is given out from memory: workers of outbox %q withhold heartbeats: %s", source, e.withheld)
				}
			}
			return fmt.Errorf("nothing is given out from memory: no heartbeat of a worker of outbox %q arrives", source)
		}
	}
	if len(h.sources) == 0 {
		return errors.New("nothing is given out from memory: no outbox is named")
	}
	return nil
}
