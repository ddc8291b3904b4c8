package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// journalRefusal lets MySQL refuse the journal's rows, with the error that the table refusal holds.
func (w *world) journalRefusal() (refuse func(number int, text string), accept func()) {
	w.t.Helper()
	w.exec("CREATE TABLE refusal (number INT NOT NULL, text VARCHAR(128) NOT NULL)")
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON cache_outbox_journal FOR EACH ROW BEGIN
  DECLARE n INT;
  DECLARE t VARCHAR(128);
  SELECT number, text INTO n, t FROM refusal LIMIT 1;
  IF n IS NOT NULL THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = n, MESSAGE_TEXT = t; END IF;
END`)
	w.exec("INSERT INTO refusal VALUES (1114, 'The table is full')")
	return func(number int, text string) {
			w.t.Helper()
			w.exec("UPDATE refusal SET number = ?, text = ?", number, text)
		},
		func() { w.t.Helper(); w.exec("DELETE FROM refusal") }
}

// A batch is unlinked and its journal row refused: the state describes the error of MySQL, and
// changes with it, in the log, in the metric and in /readyz, each once. Rows wait, and are
// delivered when the cause is gone.
func TestJournalIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnMySQL()
	refuse, accept := w.journalRefusal()
	w.enqueue(things(1)...)
	r := w.worker(worker.Config{})
	r.start(t)
	for _, c := range []struct {
		number            int
		text, state, cure string
	}{
		{1114, "The table is full", "mysql full", "free space on the MySQL server"},
		{1030, "Got error 28 - No space left on device", "mysql full", "free space on the MySQL server"},
		{1142, "INSERT command denied", "mysql refused", "grant the right"},
		{1021, "Disk full", "mysql full", "free space on the MySQL server"},
		{1053, "Server shutdown in progress", "mysql", ""},
	} {
		refuse(c.number, c.text)
		testenv.Eventually(t, "/readyz says "+c.text, func() bool {
			err := r.Health().Ready()
			return err != nil && strings.Contains(err.Error(), c.text) && strings.Contains(err.Error(), c.cure)
		})
		if r.log.count("state=\""+c.state+"\"")+r.log.count("state="+c.state+" ") == 0 {
			t.Errorf("%s: the log does not say %s", c.text, c.state)
		}
	}
	accept()
	testenv.Eventually(t, "the row goes", func() bool { return w.count("cache_outbox") == 0 })
	testenv.Eventually(t, "the outage is over", func() bool { return r.Health().Ready() == nil })
	for state, n := range map[string]float64{"mysql full": 2, "mysql refused": 1, "mysql": 1, "redis loading": 0} {
		if got := metric(t, r, `unstale_outages_total{state="`+state+`"}`); got != n {
			t.Errorf("%v outages of state %s, wanted %v", got, state, n)
		}
	}
	if n := r.log.count("outage: rows wait"); n != 4 {
		t.Errorf("%d lines about four states", n)
	}
}

// Redis starts with much data and answers late that it is loading: the log reports that, once,
// instead of a timeout.
func TestLateLoadingIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	server := testenv.OwnRedis(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "8000")
	w.url, w.redis = server.URL(), redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = w.redis.Close() })
	w.set(texts(5000, "shop:thing:%d")...)
	if err := w.redis.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ks := w.keyspace(100 * time.Millisecond)
	r := w.worker(worker.Config{}, func(worker.Redis) worker.Redis { return worker.NewRedis(ks) })
	r.start(t)
	testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the outage is noticed", func() bool { return r.log.count(`state="redis network"`) == 1 })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the outage is over", func() bool { return r.log.count("outage is over") > 0 })
	// slow before and after
	if r.log.count(`state="redis loading"`) != 1 || r.log.count(`state="redis timeout"`) > 2 {
		t.Error("the log does not say once that redis is loading")
	}
}

// A worker that starts in a pause is up: it rests on purpose. In a pause it does not ask Redis, so
// an outage of Redis neither counts nor ends.
func TestAPausedWorkerIsUp(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	r := w.worker(worker.Config{})
	orders := r.store.Actions.As("me")
	pause := func() {
		t.Helper()
		if err := orders.Pause(t.Context(), store.AnyPause, "", 0); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "it pauses", func() bool { return metric(t, r, "unstale_paused") == 1 })
	}
	resume := func() {
		t.Helper()
		if _, err := orders.Resume(t.Context(), store.AnyPause); err != nil {
			t.Fatal(err)
		}
	}
	state := func(want string) {
		t.Helper()
		testenv.Eventually(t, "it is "+want, func() bool {
			list, err := r.store.Workers.Workers(t.Context())
			return err == nil && len(list) == 1 && list[0].State == want
		})
	}
	if err := orders.Pause(t.Context(), store.AnyPause, "", 0); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	testenv.Eventually(t, "it is up", func() bool { return metric(t, r, "unstale_up") == 1 })
	state(store.WorkerPaused)
	if n := r.log.count("working: "); n != 0 || metric(t, r, "unstale_heartbeat") != 0 {
		t.Errorf("it works in a pause: %d", n)
	}
	resume()
	testenv.Eventually(t, "it works", func() bool { return r.log.count("working: mysql and redis answer") == 1 })
	state(store.WorkerWorking)

	if err := past.server.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the outage shows", func() bool { return metric(t, r, "unstale_up") == 0 })
	pause()
	testenv.Eventually(t, "it is up", func() bool { return metric(t, r, "unstale_up") == 1 })
	if n := r.log.count("outage is over"); n != 0 {
		t.Error("nobody has asked Redis")
	}
	resume()
	testenv.Eventually(t, "the outage shows again", func() bool { return metric(t, r, "unstale_up") == 0 && r.Health().Ready() != nil })
	if err := past.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is over", func() bool { return r.log.count("outage is over") == 1 && r.Health().Ready() == nil })
}
