package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// run runs a whole worker against the world's servers, with some URL of its Redis, until the
// function that it returns is called.
func (w *world) run(url string, log *logBuffer) (stop func()) {
	return w.runWith(worker.Config{}, url, log)
}

// runWith is run with some settings.
func (w *world) runWith(cfg worker.Config, url string, log *logBuffer) (stop func()) {
	w.t.Helper()
	mysql, err := session.ParseDSN(w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	redis, err := redisurl.Parse(url, false)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.MySQL, cfg.Redis, cfg.MapFile, cfg.MapEnv = mysql, redis, w.mapFile, mapEnv
	cfg.Name, cfg.WakeChannel, cfg.RedisTimeout = "web-1", "-", 5*time.Second
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	runs, err := worker.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runs.Run(ctx) }()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
}

// A worker publishes once per second where it writes and its status, including its stop. It
// continues while MySQL blocks its writes.
func TestStateInRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnRedis()
	source, err := outbox.Source(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	hashes := w.keyspace(5 * time.Second).StatusHashes
	noted := func() store.WorkerNote {
		t.Helper()
		list, err := status.Workers(t.Context(), hashes, source)
		if err != nil || len(list) > 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if len(list) == 0 {
			return store.WorkerNote{}
		}
		return list[0]
	}
	stop := w.run(w.url, &logBuffer{})
	testenv.Eventually(t, "it works", func() bool { return noted().State == store.WorkerWorking })
	if n := noted(); n.Name != "web-1" || n.Channel != w.channel || n.MapVersion == "" || n.Drained == nil || !n.Works() {
		t.Errorf("%+v", n)
	}
	told := func() protocol.Alive {
		t.Helper()
		a, err := protocol.ParseAlive(w.redis.HGet(t.Context(), "unstale:alive", source).Val())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := told()
	if first.Lease == 0 || first.Map != noted().MapVersion {
		t.Errorf("%+v", first)
	}
	heard := w.listen()
	testenv.Eventually(t, "heartbeats say so", func() bool { return heard.beats(1).Beat.Alive })
	testenv.Eventually(t, "it publishes and tells the epoch of that", func() bool { return told().Epoch != "" && told().Time > first.Time })

	locked, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if _, err := locked.ExecContext(t.Context(), "LOCK TABLES cache_outbox_workers READ"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "MySQL has not heard of it, and Redis has", func() bool {
		var silent int
		if err := locked.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(SECOND, seen_at, UTC_TIMESTAMP(6)) FROM cache_outbox_workers").Scan(&silent); err != nil {
			t.Fatal(err)
		}
		return silent > 5 && noted().Silent < 4*time.Second
	})
	if _, err := locked.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}

	stop()
	if n := noted(); n.State != store.WorkerStopped || n.Lives() {
		t.Errorf("%+v", n)
	}
	if list, err := status.Workers(t.Context(), hashes, "another source"); err != nil || len(list) > 0 {
		t.Errorf("of another source: %+v, %v", list, err)
	}
}

// A worker that sends no heartbeats publishes its state and its database nevertheless.
func TestStateInRedisWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m   string
		cfg worker.Config
	}{
		"format array":  {m: strings.Replace(plainMap, "publish: {", "publish: {format: array, ", 1)},
		"idle interval": {m: plainMap, cfg: worker.Config{IdleInterval: 2 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.m)
			w.onOwnRedis()
			source, err := outbox.Source(t.Context(), w.db)
			if err != nil {
				t.Fatal(err)
			}
			hashes := w.keyspace(5 * time.Second).StatusHashes
			stop := w.runWith(c.cfg, w.url, &logBuffer{})
			defer stop()
			testenv.Eventually(t, "it publishes its status, its server and its database", func() bool {
				list, err := status.Workers(t.Context(), hashes, source)
				_, known, conflictsErr := status.Conflicts(t.Context(), hashes, source)
				return err == nil && len(list) == 1 && list[0].Works() && conflictsErr == nil && known && w.redis.HExists(t.Context(), "unstale:alive", source).Val()
			})
		})
	}
}

// A database with less data than before is detected even if the worker settles more batches
// immediately than were lost: it publishes the database before it claims a row.
func TestRestoredDatabaseThatWritesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.onOwnRedis()
	source, err := outbox.Source(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	hashes := w.keyspace(5 * time.Second).StatusHashes
	w.enqueue(things(1)...)
	stop := w.run(w.url, &logBuffer{})
	testenv.Eventually(t, "the batch is published", func() bool {
		return strings.Contains(fmt.Sprint(w.redis.HGetAll(t.Context(), "unstale:sources").Val()), `"last_id":1}`)
	})
	stop()
	for field, text := range w.redis.HGetAll(t.Context(), "unstale:sources").Val() {
		w.redis.HSet(t.Context(), "unstale:sources", field, strings.Replace(text, `"last_id":1}`, `"last_id":3}`, 1))
	}
	w.enqueue(things(6)...)
	stop = w.runWith(worker.Config{BatchRows: 1, IdleInterval: 2 * time.Second}, w.url, &logBuffer{})
	defer stop()
	testenv.Eventually(t, "the rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	list, known, err := status.Conflicts(t.Context(), hashes, source)
	if err != nil || !known || len(list) != 1 || list[0].Kind != store.ConflictRestored || !strings.Contains(list[0].Text, "has lost batch 3 and then ended with 1") {
		t.Errorf("%+v, %v, %v", list, known, err)
	}
}

// A worker whose Redis account is from before there was such state reports what it lacks, and
// works.
func TestStateInRedisWithoutTheRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	url := w.onRedisOf("")
	log := &logBuffer{}
	w.set("shop:thing:1")
	stop := w.run(url, log)
	defer stop()
	testenv.Eventually(t, "both reports", func() bool { return strings.Count(log.String(), "cannot publish worker state in redis") == 2 })
	w.enqueue(things(1)...)
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 && len(w.left()) == 0 })
	text := log.String()
	if strings.Count(text, "cannot publish worker state in redis") != 2 || !strings.Contains(text, keyspace.StatusRules) || !strings.Contains(text, "level=WARN") {
		t.Error(text)
	}
	for _, effect := range []string{"readers cannot detect a wrong server or database", "status depends on mysql alone"} {
		if strings.Count(text, effect) != 1 {
			t.Errorf("%q: %s", effect, text)
		}
	}
	if strings.Contains(text, "heartbeats are withheld") || strings.Contains(text, "msg=\"outage") {
		t.Error(text)
	}
}

// A worker whose account may write one of the hashes renews that one every second, although Redis
// refuses the other.
func TestStateInRedisWithHalfTheRules(t *testing.T) {
	t.Parallel()
	for _, may := range []string{"unstale:alive", "unstale:workers"} {
		w := newWorld(t, plainMap)
		log := &logBuffer{}
		stop := w.run(w.onRedisOf("+hset +hdel +hgetall +pexpire ~"+may), log)
		seen := map[string]bool{}
		testenv.Eventually(t, may+" is renewed again and again", func() bool {
			for _, text := range w.redis.HGetAll(t.Context(), may).Val() {
				seen[text] = true
			}
			return len(seen) > 3
		})
		stop()
		if n := strings.Count(log.String(), "cannot publish worker state in redis"); n != 1 {
			t.Errorf("%s: %d reports: %s", may, n, log)
		}
	}
}

// onRedisOf makes the world use a Redis with an account that has more rules than those from before
// there was such state, and returns its URL.
func (w *world) onRedisOf(more string) string {
	w.t.Helper()
	server := w.onOwnRedis()
	old := "acl setuser worker on >secret -@all +ping +select +unlink +get +set +time +scan +dbsize +publish +subscribe ~shop:* ~lock:fill:* ~unstale:beacon:* &" + w.channel
	var rules []any
	for _, word := range strings.Fields(old + " " + more) {
		rules = append(rules, word)
	}
	if err := w.redis.Do(w.t.Context(), rules...).Err(); err != nil {
		w.t.Fatal(err)
	}
	return "redis://worker:secret@" + server.Addr()
}
