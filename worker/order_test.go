package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// A witness checks both servers when the worker calls Redis: before an UNLINK, a PUBLISH, a scan of
// the keyspace or a batch of sets. Only for DrainRows and Drain, which call it sequentially or, for
// sweeps, in parallel.
type witness struct {
	worker.Redis
	look func(call string, names []string)
}

func (w *witness) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Key
	}
	w.look("unlink", names)
	return w.Redis.Unlink(ctx, targets)
}

func (w *witness) Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error) {
	w.look("publish", slices.Concat(news.Keys, news.Patterns))
	return w.Redis.Publish(ctx, channel, f, news)
}

func (w *witness) Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error) {
	w.look("sweep", patterns)
	return w.Redis.Sweep(ctx, patterns, watch)
}

// Sentence 3: the message comes after UNLINK was answered, and the row exists until both are done.
func TestRowIsSettledLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	var calls []string
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return &witness{real, func(call string, _ []string) {
			calls = append(calls, call)
			if rows, settled := w.count("cache_outbox"), len(w.journalled()); rows != 2 || settled != 0 {
				t.Errorf("before %s: %d rows are there, %d are in the journal", call, rows, settled)
			}
			if left := len(w.left()); call == "unlink" && left != 2 || call == "publish" && left != 0 {
				t.Errorf("before %s: %d keys are left", call, left)
			}
		}}
	})
	w.set("shop:thing:1", "shop:thing:2")
	w.enqueue(things(2)...)
	if _, err := r.DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(calls, " "); got != "unlink publish" || w.count("cache_outbox") != 0 || len(w.journalled()) != 2 {
		t.Errorf("calls: %s; %d rows are left", got, w.count("cache_outbox"))
	}
}

// Sentence 3: without an answer to UNLINK nothing is published and nothing is settled.
func TestNothingIsSettledWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	lost := &lostAnswers{}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { lost.Redis = real; return lost })
	e := w.listen()
	w.set("shop:thing:1")
	w.enqueue(things(1)...)
	if _, err := r.DrainRows(t.Context()); !errors.Is(err, errLost) {
		t.Fatalf("drain: %v", err)
	}
	if rows, settled := w.count("cache_outbox"), len(w.journalled()); rows != 1 || settled != 0 {
		t.Errorf("%d rows are left, %d are in the journal", rows, settled)
	}
	lost.found = true
	w.enqueue(outbox.Invalidation{Entity: "thing", ID: "2"})
	r.drain(t)
	// each once: nothing came before
	if keys, _ := e.heard(2); strings.Join(keys, " ") != "shop:thing:1 shop:thing:2" {
		t.Errorf("heard %q", keys)
	}
}

var errLost = errors.New("the answer is lost")

// lostAnswers unlinks, and returns an error as if the outcome were unknown.
type lostAnswers struct {
	worker.Redis
	found bool
}

func (l *lostAnswers) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	done, err := l.Redis.Unlink(ctx, targets)
	if err == nil && !l.found {
		err = errLost
	}
	return done, err
}

// Sentence 10: a pattern is requested by the commit that settles its row, swept after that, and
// published after its sweep.
func TestPatternIsSweptAfterItsRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	const pattern = "shop:list:7:*"
	var calls []string
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return &witness{real, func(call string, names []string) {
			if !slices.Contains(names, pattern) {
				return
			}
			calls = append(calls, call)
			if rows, requests := w.count("cache_outbox"), w.count("cache_outbox_sweeps"); rows != 0 || requests != 1 {
				t.Errorf("before %s: %d rows, %d requests", call, rows, requests)
			}
			if left := len(w.left()); call == "sweep" && left != 1 || call == "publish" && left != 0 {
				t.Errorf("before %s: %d keys are left", call, left)
			}
		}}
	})
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	r.drain(t)
	if got := strings.Join(calls, " "); got != "sweep publish" {
		t.Errorf("calls: %s", got)
	}
}

// Sentence 10: if the settlement of the row rolls back, so does the request; if it commits, both
// exist.
func TestSweepIsRequestedWithItsRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.exec("CREATE TRIGGER refuse BEFORE INSERT ON cache_outbox_journal FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no journal'")
	r := w.worker(worker.Config{})
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"}, outbox.Invalidation{Entity: "tagged", ID: "x"})
	if _, err := r.DrainRows(t.Context()); err == nil || !strings.Contains(err.Error(), "no journal") {
		t.Fatalf("drain: %v", err)
	}
	if rows, requests := w.count("cache_outbox"), w.count("cache_outbox_sweeps"); rows != 2 || requests != 0 {
		t.Errorf("after a rollback: %d rows, %d requests", rows, requests)
	}
	w.exec("DROP TRIGGER refuse")
	testenv.Eventually(t, "the rows are settled", func() bool {
		_, err := r.DrainRows(t.Context())
		return err == nil && w.count("cache_outbox") == 0
	})
	if requests := w.count("cache_outbox_sweeps"); requests != 2 {
		t.Errorf("after the commit: %d requests", requests)
	}
}
