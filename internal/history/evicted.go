package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// reportSlack is how far the clocks of the database and of Redis may be apart.
const reportSlack = 10 * time.Minute

// An Evictor is a process that reports to have evicted what messages of a batch name.
type Evictor struct {
	Process  string `json:"process"`
	Messages uint64 `json:"messages"` // of how many of them
}

// A wantedRun is messages of a batch, and which of them processes have received.
type wantedRun struct {
	batch       uint64
	first, last uint64
	heard       map[string][]span
}

// A span is messages, both ends included.
type span struct{ first, last uint64 }

// AddEvictions asks Redis which processes have reported the messages of the rows. An error becomes
// part of the result.
func (all *Past) AddEvictions(ctx context.Context, in Redis) {
	wanted, since := map[uint64][]*wantedRun{}, time.Time{} // by epoch
	asked := map[uint64]bool{}                              // batches
	for i := range all.Found {
		s := &all.Found[i]
		for _, r := range s.runs {
			s.Messages += r.Last - r.First + 1
		}
		if !s.MayBeEvicted() || asked[s.Batch] {
			continue
		}
		asked[s.Batch] = true
		if since.IsZero() || s.PublishedAt.Before(since) {
			since = *s.PublishedAt
		}
		for _, r := range s.runs {
			wanted[r.Epoch] = append(wanted[r.Epoch], &wantedRun{s.Batch, r.First, r.Last, map[string][]span{}})
		}
	}
	if len(asked) == 0 {
		return
	}
	oldest, dropped := time.Time{}, map[string]uint64{}
	err := in(func(redis *keyspace.Contents) error {
		return redis.Reports(ctx, since.Add(-reportSlack), func(r protocol.Report, at time.Time) {
			oldest = at
			for _, w := range wanted[store.EpochHash(r.Epoch)] {
				w.note(r)
			}
			if r.Dropped > 0 {
				dropped[r.Process] += r.Dropped
			}
		})
	})
	if len(dropped) > 0 {
		all.Unreported = dropped
	}
	by := evictorsOf(wanted)
	for i := range all.Found {
		if s := &all.Found[i]; s.MayBeEvicted() {
			s.Least = len(dropped) > 0
			if s.EvictedBy = by[s.Batch]; len(s.EvictedBy) == 0 {
				s.EvictedUnknown = s.whyUnknown(err, oldest)
			}
		}
	}
}

// MayBeEvicted reports whether a process may have received a message of the row.
func (s *Settlement) MayBeEvicted() bool {
	return s.PublishedAt != nil && (s.Receivers == nil || *s.Receivers > 0)
}

// whyUnknown returns why no process is known to have evicted the keys of the row.
func (s *Settlement) whyUnknown(err error, oldest time.Time) string {
	switch {
	case s.Messages == 0:
		return "its messages have no numbers"
	case err != nil:
		return err.Error()
	case oldest.IsZero():
		return "no process reports"
	case oldest.After(*s.PublishedAt):
		return "reports begin at " + oldest.Format(time.RFC3339)
	}
	return "no process has reported it"
}

// note records the messages of a report.
func (w *wantedRun) note(r protocol.Report) {
	if both := (span{max(w.first, r.First), min(w.last, r.Last)}); both.first <= both.last {
		w.heard[r.Process] = append(w.heard[r.Process], both)
	}
}

// evictorsOf lists the processes that have reported messages of batches, by name.
func evictorsOf(wanted map[uint64][]*wantedRun) map[uint64][]Evictor {
	counts := map[uint64]map[string]uint64{}
	for _, runs := range wanted {
		for _, w := range runs {
			for process, spans := range w.heard {
				if counts[w.batch] == nil {
					counts[w.batch] = map[string]uint64{}
				}
				counts[w.batch][process] += covered(spans)
			}
		}
	}
	by := map[uint64][]Evictor{}
	for batch, processes := range counts {
		for _, process := range slices.Sorted(maps.Keys(processes)) {
			by[batch] = append(by[batch], Evictor{process, processes[process]})
		}
	}
	return by
}

// covered counts messages; a report that was sent twice counts once.
func covered(spans []span) (n uint64) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	next := uint64(0)
	for _, s := range spans {
		if first := max(s.first, next); first <= s.last {
			n += s.last - first + 1
			next = s.last + 1
		}
	}
	return n
}
