package worker_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// Sentence 17: a COMMIT that hangs, as on a full disk, is an outage until a write commits: polls
// and claims work meanwhile. Health reports it with the fix, /healthz stays well, and heartbeats
// stop. Nothing is lost.
func TestACommitHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnMySQL(servers.BinaryLog...)
	claimed, held := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(claimed); <-held })
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return watching{real, func([]keyspace.Target) { hold() }}
	})
	c := w.reader(time.Second)
	r.start(t)
	testenv.Eventually(t, "it works", func() bool { return r.Health().Ready() == nil && metric(t, r, "unstale_heartbeat") == 1 })
	c.open()
	w.set("shop:thing:1")
	w.enqueue(things(1)...)
	<-claimed
	release := testenv.HoldCommits(t, w.db)
	close(held)
	testenv.Eventually(t, "health reports it", func() bool {
		err := r.Health().Ready()
		return err != nil && strings.Contains(err.Error(), "a COMMIT has not returned since ") && strings.Contains(err.Error(), "free space on the disk of MySQL's binary log, bring back what COMMIT waits for (a semi-synchronous replica, the majority of Group Replication), or end the backup")
	})
	testenv.Eventually(t, "heartbeats stop", func() bool { return metric(t, r, "unstale_heartbeat") == 0 })
	c.closed("no heartbeat")
	testenv.Eventually(t, "the row was listed for long", func() bool { return metric(t, r, "unstale_behind_seconds") > 15 })
	if err := r.Health().Ready(); err == nil || r.log.count("outage is over") != 0 {
		t.Errorf("after a while: %v", err)
	}
	if err := r.Health().Alive(); err != nil {
		t.Errorf("a restart does not help, and it is asked for: %v", err)
	}
	for name, want := range map[string]float64{"unstale_up": 0, `unstale_stalled{reason="commit"}`: 1, `unstale_stalled{reason="held"}`: 0, `unstale_outages_total{state="mysql hung"}`: 1} {
		if got := metric(t, r, name); got != want {
			t.Errorf("%s is %v, wanted %v", name, got, want)
		}
	}
	release()
	testenv.Eventually(t, "it works again", func() bool {
		return r.Health().Ready() == nil && metric(t, r, "unstale_up") == 1 && metric(t, r, `unstale_stalled{reason="commit"}`) == 0 && metric(t, r, "unstale_heartbeat") == 1
	})
	c.open()
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 && w.count("cache_outbox_journal") == 1 })
	if n := r.log.count("outage: rows wait"); n != 1 {
		t.Errorf("%d lines about one outage", n)
	}
}

// A worker that has nothing to settle notices it, too, when it writes its status record.
func TestACommitHangsOfAnIdleWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnMySQL(servers.BinaryLog...)
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "it works", func() bool { return r.Health().Ready() == nil })
	release := testenv.HoldCommits(t, w.db)
	testenv.Eventually(t, "health reports it", func() bool {
		err := r.Health().Ready()
		return err != nil && strings.Contains(err.Error(), "a COMMIT has not returned")
	})
	release()
	testenv.Eventually(t, "it works again", func() bool { return r.Health().Ready() == nil })
}

// Sentence 17: a row that another session has locked is reported after the claim timeout and two
// seconds. Heartbeats and other rows continue. The report ends when the row is gone.
func TestARowIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(3 * time.Second)
	w.enqueue(things(1)...)
	committed := time.Now()
	holder, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'held' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "it works", func() bool { return r.Health().Ready() == nil })
	began := time.Now()
	w.enqueue(things(2)...)
	testenv.Eventually(t, "the other rows go", func() bool { return w.count("cache_outbox") == 1 })
	testenv.Eventually(t, "readers report it", func() bool { return errors.Is(c.c.Healthy(), cache.ErrBehind) })
	c.keeps("old")
	c.write("new")
	w.wantBound(c, committed)
	testenv.Eventually(t, "health reports it", func() bool {
		err := r.Health().Ready()
		return err != nil && strings.Contains(err.Error(), "row 1 of cache_outbox has waited for ") && strings.Contains(err.Error(), "another session has it locked; end its transaction")
	})
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("after %s a worker may have had it in hand", took)
	}
	if metric(t, r, "unstale_up") != 1 || metric(t, r, "unstale_heartbeat") != 1 || metric(t, r, `unstale_stalled{reason="held"}`) != 1 || metric(t, r, "unstale_behind_seconds") < 12 {
		t.Errorf("up %v, heartbeats %v, behind %v", metric(t, r, "unstale_up"), metric(t, r, "unstale_heartbeat"), metric(t, r, "unstale_behind_seconds"))
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it goes", func() bool {
		return r.Health().Ready() == nil && w.count("cache_outbox") == 0 && metric(t, r, `unstale_stalled{reason="held"}`) == 0
	})
	c.open()
	c.keeps("new")
	if n := c.log.count("memory is closed"); n != 0 {
		t.Errorf("memory closed %d times", n)
	}
	if n := r.log.count("rows make no progress"); n != 1 {
		t.Errorf("%d lines", n)
	}
}
