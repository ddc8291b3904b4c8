package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// A row that a session has locked is held only if each other worker has written two status records
// without heavy rows since the row was found locked. A worker may have made the first record
// before.
func TestRecordsThatExcludeHeavyRows(t *testing.T) {
	t.Parallel()
	heavy := new(time.Duration)
	record := func(id string, silent time.Duration, heavy *time.Duration) store.WorkerNote {
		return store.WorkerNote{ID: id, State: store.WorkerWorking, Silent: silent, Heavy: heavy}
	}
	type step struct {
		second  int // since the row was found locked
		records []store.WorkerNote
		may     bool
	}
	for name, steps := range map[string][]step{
		"alone":          {{0, nil, false}, {0, []store.WorkerNote{record("self", 0, heavy)}, false}},
		"gone":           {{0, []store.WorkerNote{record("a", silentRecord+time.Second, heavy)}, false}},
		"older record":   {{0, []store.WorkerNote{record("a", 0, nil)}, true}, {5, []store.WorkerNote{record("a", 5*time.Second, nil)}, true}},
		"one record":     {{2, []store.WorkerNote{record("a", 0, nil)}, true}, {5, []store.WorkerNote{record("a", 3*time.Second, nil)}, true}},
		"two records":    {{2, []store.WorkerNote{record("a", 0, nil)}, true}, {4, []store.WorkerNote{record("a", 0, nil)}, false}},
		"the other lags": {{2, []store.WorkerNote{record("a", 0, nil), record("b", 2*time.Second, nil)}, true}, {4, []store.WorkerNote{record("a", 0, nil), record("b", 0, nil)}, true}, {6, []store.WorkerNote{record("a", 0, nil), record("b", 0, nil)}, false}},
		"heavy between":  {{2, []store.WorkerNote{record("a", 0, nil)}, true}, {4, []store.WorkerNote{record("a", 0, heavy)}, true}, {6, []store.WorkerNote{record("a", 0, nil)}, true}, {8, []store.WorkerNote{record("a", 0, nil)}, false}},
		"a slow answer":  {{3, []store.WorkerNote{record("a", time.Second, nil), record(slowAnswer, 0, nil)}, true}, {6, []store.WorkerNote{record("a", time.Second, nil)}, true}},
		"no answer":      {{2, []store.WorkerNote{record("a", 0, nil)}, true}, {4, []store.WorkerNote{record(noAnswer, 0, nil)}, true}},
		"for too long":   {{61, []store.WorkerNote{record("a", 0, heavy)}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now []store.WorkerNote
				p := &prover{base: &base{Deps: maintenance.Deps{Store: &store.Store{ID: "self"}}}, heavyLimit: time.Minute, workers: records{&now}}
				late := []lateRow{{ListedRow: store.ListedRow{ID: 1, Place: 1}}}
				began := time.Now()
				p.held[store.ListedHot] = map[rowAt]time.Time{{1, 1}: began}
				for _, s := range steps {
					time.Sleep(time.Until(began.Add(time.Duration(s.second) * time.Second)))
					now = s.records
					if may := p.mayBeHeavy(t.Context(), store.ListedHot, late); may != s.may {
						t.Errorf("second %d: %v", s.second, may)
					}
				}
			})
		})
	}
}

// silentRecord is the age of its last record at which a worker counts as gone.
const silentRecord = 10 * time.Second

// records are those of other workers. An answer can take three seconds, or fail.
type records struct{ now *[]store.WorkerNote }

const slowAnswer, noAnswer = "slow", "none"

func (r records) Workers(context.Context) ([]store.WorkerNote, error) {
	list := *r.now
	if len(list) == 0 {
		return nil, nil
	}
	switch list[len(list)-1].ID {
	case slowAnswer:
		time.Sleep(3 * time.Second)
		return list[:len(list)-1], nil
	case noAnswer:
		return nil, errors.New("no answer")
	}
	return list, nil
}
