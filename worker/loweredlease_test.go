package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

// leaseMap is plainMap with a lease.
func leaseMap(lease string) string {
	return strings.Replace(plainMap, "version: 1", "version: 1\nlease: "+lease, 1)
}

// A slowReader holds the fill lease of a key while its loader, which has read the old row, waits.
type slowReader struct {
	w      *world
	goOn   chan struct{}
	loaded chan error
}

// slowReader returns a reader whose loader has begun, under a lease as long as the map allows now.
// The key is not yet a member of tag:x, so the first sweep of that set does not find it.
func (w *world) slowReader(lease string) *slowReader {
	w.t.Helper()
	o, err := redis.ParseURL(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	c, err := cache.New(cache.Config{Redis: client, Prefix: "shop:", Timeout: 5 * time.Second, Lease: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	goOn := make(chan struct{}) // finish clears the field
	r := &slowReader{w: w, goOn: goOn, loaded: make(chan error, 1)}
	testenv.Eventually(w.t, "the reader to know the lease of the map", func() bool {
		if _, err := cache.Fetch(w.t.Context(), c, "other", func(context.Context) (string, error) { return "", nil }, nil); err != nil {
			w.t.Fatal(err)
		}
		err := c.Healthy()
		return err != nil && strings.Contains(err.Error(), "the map's lease is "+lease)
	})
	began := make(chan struct{})
	go func() {
		_, err := cache.Fetch(context.Background(), c, "member:late", func(context.Context) (string, error) {
			close(began)
			<-goOn
			return "old", nil
		}, nil)
		r.loaded <- err
	}()
	<-began
	w.t.Cleanup(func() {
		r.finish()
		_, _ = c.Close(), client.Close()
	})
	return r
}

// finish lets the loader return and waits until the reader has stored the value, or was refused.
func (r *slowReader) finish() {
	if r.goOn == nil {
		return
	}
	close(r.goOn)
	r.goOn = nil
	if err := <-r.loaded; err != nil {
		r.w.t.Errorf("fetch: %v", err)
	}
}

// Sentence 14: readers may hold leases of an earlier map, even if the worker with that map has
// stopped. The second sweep waits for them.
func TestALoweredLeaseAfterARestart(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(w *world){
		"one restart": func(*world) {},
		"two restarts": func(w *world) {
			w.writeMap(leaseMap("200ms"))
			stop := w.run(w.url, &logBuffer{})
			testenv.Eventually(w.t, "the second worker to work", func() bool {
				return w.count("cache_outbox_workers WHERE state = 'working'") == 1
			})
			stop()
		},
		"unstale:alive is evicted": func(w *world) {
			if err := w.redis.Del(w.t.Context(), "unstale:alive").Err(); err != nil {
				w.t.Fatal(err)
			}
		},
		"the records of workers are lost": func(w *world) { w.exec("DELETE FROM cache_outbox_workers") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, leaseMap("4s"))
			w.t = t
			w.onOwnRedis()
			stop := w.run(w.url, &logBuffer{})
			r := w.slowReader("4s")
			stop()
			between(w)
			w.writeMap(leaseMap("200ms"))
			defer w.run(w.url, &logBuffer{})()
			w.enqueue(outbox.Invalidation{Entity: "tagged", ID: "x"})
			testenv.Eventually(t, "both sweeps", func() bool { return w.count("cache_outbox")+w.count("cache_outbox_sweeps") == 0 })
			r.finish()
			if got := w.redis.Get(t.Context(), "shop:member:late").Val(); got != "" {
				t.Errorf("after the second sweep, Redis holds %q", got)
			}
		})
	}
}

// settlesAfter requests a sweep and returns how long after that the second one follows.
func (w *world) settlesAfter() (after time.Duration) {
	w.t.Helper()
	w.exec("DELETE FROM cache_outbox_sweeps")
	w.enqueue(outbox.Invalidation{Entity: "tagged", ID: "x"})
	testenv.Eventually(w.t, "the first sweep", func() bool {
		var micros int64
		err := w.db.QueryRowContext(w.t.Context(), "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, not_before) FROM cache_outbox_sweeps WHERE swept_at IS NOT NULL").Scan(&micros)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			w.t.Fatal(err)
		}
		after = time.Duration(micros) * time.Microsecond
		return err == nil
	})
	return after
}

// Sentence 14: while workers with two leases run, each waits for the longer one when it sweeps. It
// still does so when the worker with the longer lease has stopped.
func TestTwoLeasesSideBySide(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][2]string{"the longer one first": {"1h", "20m"}, "the shorter one first": {"20m", "1h"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, leaseMap(order[0]))
			w.onOwnRedis()
			stops := map[string]func(){order[0]: w.run(w.url, &logBuffer{})}
			testenv.Eventually(t, "the first worker to announce its lease", func() bool {
				return w.count("cache_outbox_workers WHERE announced_at IS NOT NULL") == 1
			})
			other := *w
			other.mapFile = filepath.Join(t.TempDir(), "mapping.yaml")
			other.writeMap(leaseMap(order[1]))
			stops[order[1]] = other.run(w.url, &logBuffer{})
			defer func() {
				for _, stop := range stops {
					stop()
				}
			}()
			testenv.Eventually(t, "both to announce theirs", func() bool {
				return w.count("cache_outbox_workers WHERE announced_at IS NOT NULL AND state = 'working'") == 2
			})
			for range 3 { // by one or the other
				if after := w.settlesAfter(); after != time.Hour {
					t.Errorf("side by side: %v", after)
				}
			}
			stops["1h"]()
			delete(stops, "1h")
			if after := w.settlesAfter(); after != time.Hour {
				t.Errorf("when the worker with the longer lease has stopped: %v", after)
			}
			w.exec("UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 61 MINUTE WHERE state = 'stopped'")
			if after := w.settlesAfter(); after != time.Hour {
				t.Errorf("before the other one has announced its own for an hour: %v", after)
			}
		})
	}
}

// A worker of an earlier release records no lease. A later one assumes what Redis had from it, or
// the default of maps.
func TestLeaseOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]time.Duration{20 * time.Minute: 20 * time.Minute, 0: 10 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, leaseMap("200ms"))
			w.onOwnRedis()
			// as b3e27c1 writes its record
			w.exec(`REPLACE INTO cache_outbox_workers (id, name, state, error, since, drained_at, map_version, map_error, map_warning, channel, format,
stalled, stall_error, heavy_since)
VALUES ('old', 'old', 'working', NULL, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 'old', NULL, NULL, 'c', 'event', NULL, NULL, NULL)`)
			// it writes its record all the time
			w.exec("UPDATE cache_outbox_workers SET seen_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")
			if lease > 0 {
				source, err := outbox.Source(t.Context(), w.db)
				if err != nil {
					t.Fatal(err)
				}
				text := protocol.Alive{Time: time.Now().UnixMicro(), Lease: lease.Milliseconds(), Map: "old"}.String()
				if err := w.redis.HSet(t.Context(), "unstale:alive", source, text).Err(); err != nil {
					t.Fatal(err)
				}
			}
			defer w.run(w.url, &logBuffer{})()
			testenv.Eventually(t, "the later worker to announce its lease", func() bool {
				return w.count("cache_outbox_workers WHERE announced_at IS NOT NULL") == 1
			})
			if after := w.settlesAfter(); after != want {
				t.Errorf("settles after %v, wanted %v", after, want)
			}
		})
	}
}
