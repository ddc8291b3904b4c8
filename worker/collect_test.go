package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// A scriptedRedis does the next of its steps before each PUBLISH, and may change what UNLINK
// returns.
type scriptedRedis struct {
	worker.Redis
	unlinks [][]string
	after   func(call int, done keyspace.Unlinked) (keyspace.Unlinked, error)
	steps   []func()
}

func (s *scriptedRedis) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	var names []string
	for _, t := range targets {
		names = append(names, t.Key)
	}
	s.unlinks = append(s.unlinks, names)
	done, err := s.Redis.Unlink(ctx, targets)
	if err == nil && s.after != nil {
		return s.after(len(s.unlinks), done)
	}
	return done, err
}

func (s *scriptedRedis) Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error) {
	if len(s.steps) > 0 {
		next := s.steps[0]
		s.steps = s.steps[1:]
		next()
	}
	return s.Redis.Publish(ctx, channel, f, news)
}

// Sentence 3: while a batch is open, the rows of each hint are unlinked and published immediately, a
// key again if a later row has it, and rows with lower IDs too. One commit settles all of them, each
// part with a row of the journal and its own time. A row that needs more than an UNLINK ends the
// batch.
func TestHintsAreCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	redis := &scriptedRedis{}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { redis.Redis = real; return redis })
	unsettled := func(rows int) {
		t.Helper()
		if n, settled := w.count("cache_outbox"), len(w.journalled()); n != rows || settled != 0 {
			t.Errorf("%d rows are there, %d are in the journal", n, settled)
		}
	}
	thing := func(id string) outbox.Invalidation { return outbox.Invalidation{Entity: "thing", ID: id} }
	redis.steps = []func(){
		func() {
			unsettled(1)
			w.set("shop:thing:1")
			w.exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (7, 'thing', '1')")
			r.State.Wake()
		},
		func() {
			unsettled(2)
			r.State.Wake()
			w.enqueue(thing("2"), outbox.Invalidation{Entity: "nobody", ID: "3"}, outbox.Invalidation{Entity: "list", ID: "4"})
		},
		func() {
			unsettled(5)
			r.State.Wake()
			w.enqueue(thing("5")) // for the next batch
		},
	}
	w.set("shop:thing:1")
	w.exec("ALTER TABLE cache_outbox AUTO_INCREMENT = 100")
	w.enqueue(thing("1"))
	got, err := r.Collect(t.Context())
	if err != nil || got.Claimed != 5 || got.Unlinked != 4 || got.Dead != 1 || got.Sweeps != 1 || got.Messages != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := [][]string{{"shop:thing:1"}, {"shop:thing:1"}, {"shop:thing:2"}}
	if !slices.EqualFunc(redis.unlinks, want, slices.Equal) || len(w.left()) > 0 {
		t.Errorf("unlinked %v, and %v are left", redis.unlinks, w.left())
	}
	if settled := w.journalled(); len(settled) != 4 || settled[7] != 1 || settled[100] != 1 {
		t.Errorf("the journal has %v", settled)
	}
	if parts := w.count("(SELECT 1 FROM cache_outbox_journal GROUP BY row_count, born_us, beat HAVING COUNT(*) = 1) p"); parts != 3 {
		t.Errorf("%d rows of the journal with their own times", parts)
	}
	if w.count("cache_outbox_minutes WHERE batches = 3 AND rows_settled = 3 AND dead = 1") != 1 {
		t.Error("the rows are not counted")
	}
	if got := r.drain(t); got.Unlinked != 1 {
		t.Errorf("then: %+v", got)
	}
}

// If Redis fails a part of a batch, or has lost what it acknowledged before, nothing is settled,
// and the next batch unlinks all keys again. A stop settles what was unlinked.
func TestACollectedBatchFailsAsAWhole(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(int, keyspace.Unlinked) (keyspace.Unlinked, error){
		"no answer": func(call int, done keyspace.Unlinked) (keyspace.Unlinked, error) {
			if call == 2 {
				return done, errLost
			}
			return done, nil
		},
		"loss": func(call int, done keyspace.Unlinked) (keyspace.Unlinked, error) {
			if call == 2 {
				done.Position.Epoch = "ANOTHER"
			}
			return done, nil
		},
		"stop": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, plainMap)
			redis := &scriptedRedis{after: after}
			r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { redis.Redis = real; return redis })
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			redis.steps = []func(){func() {
				if after == nil {
					stop()
					return
				}
				w.enqueue(outbox.Invalidation{Entity: "thing", ID: "2"})
				r.State.Wake()
			}}
			w.set("shop:thing:1", "shop:thing:2")
			w.enqueue(outbox.Invalidation{Entity: "thing", ID: "1"})
			_, err := r.Collect(ctx)
			if after == nil {
				if err != nil || w.count("cache_outbox") != 0 {
					t.Errorf("%d rows are left after a stop: %v", w.count("cache_outbox"), err)
				}
				return
			}
			if isLoss := name == "loss"; isLoss != maintenance.IsLoss(err) || !isLoss && !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			if rows, settled := w.count("cache_outbox"), len(w.journalled()); rows != 2 || settled != 0 {
				t.Errorf("%d rows are left, %d are in the journal", rows, settled)
			}
			if got := r.drain(t); got.Unlinked != 2 || len(w.left()) > 0 {
				t.Errorf("%+v; %v are left", got, w.left())
			}
		})
	}
}
