package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/queue"
)

// A row that a session has locked is held only if each other worker has written two status records
// without heavy rows since the row was found locked. A worker may have made the first record
// before.
func TestRecordsThatExcludeHeavyRows(t *testing.T) {
	t.Parallel()
	heavy := new(time.Duration)
	record := func(id string, silent time.Duration, heavy *time.Duration) operate.WorkerNote {
		return operate.WorkerNote{ID: id, State: operate.WorkerWorking, Silent: silent, Heavy: heavy}
	}
	type step struct {
		second  int // since the row was found locked
		records []operate.WorkerNote
		may     bool
	}
	for name, steps := range map[string][]step{
		"alone":          {{0, nil, false}, {0, []operate.WorkerNote{record("self", 0, heavy)}, false}},
		"gone":           {{0, []operate.WorkerNote{record("a", silentRecord+time.Second, heavy)}, false}},
		"older record":   {{0, []operate.WorkerNote{record("a", 0, nil)}, true}, {5, []operate.WorkerNote{record("a", 5*time.Second, nil)}, true}},
		"one record":     {{2, []operate.WorkerNote{record("a", 0, nil)}, true}, {5, []operate.WorkerNote{record("a", 3*time.Second, nil)}, true}},
		"two records":    {{2, []operate.WorkerNote{record("a", 0, nil)}, true}, {4, []operate.WorkerNote{record("a", 0, nil)}, false}},
		"the other lags": {{2, []operate.WorkerNote{record("a", 0, nil), record("b", 2*time.Second, nil)}, true}, {4, []operate.WorkerNote{record("a", 0, nil), record("b", 0, nil)}, true}, {6, []operate.WorkerNote{record("a", 0, nil), record("b", 0, nil)}, false}},
		"heavy between":  {{2, []operate.WorkerNote{record("a", 0, nil)}, true}, {4, []operate.WorkerNote{record("a", 0, heavy)}, true}, {6, []operate.WorkerNote{record("a", 0, nil)}, true}, {8, []operate.WorkerNote{record("a", 0, nil)}, false}},
		"for too long":   {{61, []operate.WorkerNote{record("a", 0, heavy)}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now []operate.WorkerNote
				p := &prover{self: "self", heavyLimit: time.Minute, workers: func(context.Context) ([]operate.WorkerNote, error) { return now, nil }}
				late := []lateRow{{ListedRow: queue.ListedRow{ID: 1, Place: 1}}}
				began := time.Now()
				p.held[queue.ListedHot] = map[rowAt]time.Time{{1, 1}: began}
				for _, s := range steps {
					time.Sleep(time.Until(began.Add(time.Duration(s.second) * time.Second)))
					now = s.records
					if may := p.mayBeHeavy(t.Context(), queue.ListedHot, late); may != s.may {
						t.Errorf("second %d: %v", s.second, may)
					}
				}
			})
		})
	}
}

// silentRecord is the age of its last record at which a worker counts as gone.
const silentRecord = 10 * time.Second
