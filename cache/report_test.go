package cache_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A reporting Cache counts the keys that it has evicted and is about to report.
type reporting struct {
	*cache.Cache
	heard *atomic.Int64
}

func (w *world) reporting(channel, process string, client redis.UniversalClient) reporting {
	w.Helper()
	r := reporting{heard: &atomic.Int64{}}
	memory := cache.Memory{Size: 10, Channel: channel, MaxStaleness: time.Minute, Period: period}
	memory.Report, memory.Process = true, process
	r.Cache = w.cache(cache.Config{Redis: client, Memory: memory, Hooks: cache.Hooks{Evict: func(keys, _ []string) { r.heard.Add(int64(len(keys))) }}})
	open(w, r.Cache)
	return r
}

// announce publishes keys as a worker does.
func (w *world) announce(channel string, keys ...string) []keyspace.Run {
	w.Helper()
	done, err := w.worker.Publisher.Publish(w.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: keys})
	testenv.Must(w, err)
	return done.Runs
}

// reports returns how many messages of a run each process has reported, and what it dropped.
func (w *world) reports(run keyspace.Run) (messages, dropped map[string]uint64) {
	w.Helper()
	messages, dropped = map[string]uint64{}, map[string]uint64{}
	testenv.Must(w, w.worker.Contents.Reports(w.Context(), time.Time{}, func(r protocol.Report, at time.Time) {
		if age := time.Since(at); age < -time.Minute || age > time.Hour {
			w.Errorf("%+v is of %s", r, at)
		}
		if first, last := max(r.First, run.First), min(r.Last, run.Last); r.Epoch == run.Epoch && first <= last {
			messages[r.Process] += last - first + 1
		}
		dropped[r.Process] += r.Dropped
	}))
	return messages, dropped
}

// Two processes report the messages that they received: after a short time, and Close reports the
// rest.
func TestReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	one, two := w.reporting(channel, "web-1", nil), w.reporting(channel, "", nil)
	host, err := os.Hostname()
	testenv.Must(t, err)
	second := fmt.Sprintf("%s:%d", host, os.Getpid())
	want := func(what string, run keyspace.Run) {
		t.Helper()
		messages, dropped := w.reports(run)
		if n := run.Last - run.First + 1; messages["web-1"] != n || messages[second] != n || len(messages) != 2 || dropped["web-1"]+dropped[second] != 0 {
			t.Errorf("%s: %v of %+v, dropped %v", what, messages, run, dropped)
		}
	}
	first := w.announce(channel, "a")[0]
	testenv.Eventually(t, "the first reports", func() bool { messages, _ := w.reports(first); return len(messages) == 2 })
	want("first", first)
	keys := make([]string, 2500)
	for i := range keys {
		keys[i] = fmt.Sprint("key:", i)
	}
	more := w.announce(channel, keys...)[0]
	if more.Last-more.First != 2 {
		t.Errorf("%+v", more)
	}
	for _, c := range []reporting{one, two} {
		testenv.Eventually(t, "the messages", func() bool { return c.heard.Load() == 2501 })
		testenv.Must(t, c.Close())
		if n := c.Statistics().Unreported; n != 0 {
			t.Errorf("%d unreported", n)
		}
	}
	want("after Close", more)
	want("first, after Close", first)
}

// Close reports a message that the listener still works on.
func TestCloseReportsTheLastMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	begun, closed := make(chan struct{}), make(chan struct{})
	memory := cache.Memory{Size: 10, Channel: channel, MaxStaleness: time.Minute, Period: period, Report: true, Process: "p"}
	c := w.cache(cache.Config{Timeout: 5 * time.Second, Memory: memory, Hooks: cache.Hooks{Evict: func([]string, []string) {
		close(begun)
		<-closed
	}}})
	open(t, c)
	run := w.announce(channel, "a")[0]
	<-begun
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	testenv.Eventually(t, "Close begins", func() bool { return errors.Is(c.Healthy(), cache.ErrClosed) })
	close(closed)
	testenv.Must(t, <-done)
	if messages, _ := w.reports(run); messages["p"] != 1 {
		t.Error(messages)
	}
}

// Who is not asked to reports nothing, and heartbeats alone are no reason to.
func TestNoReports(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	channel := "c:" + t.Name()
	var heard atomic.Int64
	silent := w.cache(cache.Config{Memory: memoryOf(channel), Hooks: cache.Hooks{Evict: func(keys, _ []string) { heard.Add(1) }}})
	b := w.beat(channel, "e")
	open(t, silent)
	beats := w.reporting(channel, "p", nil)
	for range 3 {
		b.publish(protocol.Message{Beat: &protocol.Beat{Source: "s"}})
	}
	testenv.Must(t, beats.Close())
	b.publish(protocol.Message{Keys: []string{"k"}})
	testenv.Eventually(t, "the message", func() bool { return heard.Load() == 1 })
	testenv.Must(t, silent.Close())
	stats, err := w.client.Info(t.Context(), "commandstats").Result()
	testenv.Must(t, err)
	if strings.Contains(stats, "xadd") || w.client.Exists(t.Context(), protocol.ReportKey).Val() != 0 {
		t.Error(stats)
	}
}

// New checks the requirements of Memory.Report.
func TestReportIsValidated(t *testing.T) {
	t.Parallel()
	client := testenv.Client(t, "redis://127.0.0.1:1")
	for want, memory := range map[string]cache.Memory{
		"Memory.Report is set without Memory.Size":  {Report: true},
		`Memory.Process is "\xff" of 1 bytes`:       {Report: true, Size: 1, MaxStaleness: time.Second, Process: "\xff"},
		"of 129 bytes, wanted UTF-8 of at most 128": {Report: true, Size: 1, MaxStaleness: time.Second, Process: strings.Repeat("x", 129)},
	} {
		if _, err := cache.New(cache.Config{Redis: client, Memory: memory}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %s", err, want)
		}
	}
}

// In a Cluster the stream is on its own node, independent of the path of messages.
func TestReportsInACluster(t *testing.T) {
	t.Parallel()
	r := testenv.OwnCluster(t, 3, false)
	w := worldAt(t, r.URL())
	channel := "c:" + t.Name()
	c := w.reporting(channel, "p", r.Client)
	run := w.announce(channel, "a", "b")[0]
	testenv.Eventually(t, "the report", func() bool { messages, _ := w.reports(run); return messages["p"] == 1 })
	testenv.Must(t, c.Close())
}
