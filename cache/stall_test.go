package cache_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

const (
	busyVariable = "UNSTALE_TEST_BUSY_READER"
	busyTimeout  = 500 * time.Millisecond // a busy machine does not reach it
	busyStop     = 800 * time.Millisecond
)

// readBusily is the life of a process that always has commands in flight. It writes its log to
// stdout, and its statistics for each line that it gets.
func readBusily(url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer client.Close()
	c, err := cache.New(cache.Config{
		Redis: client, Timeout: busyTimeout, Pause: 50 * time.Millisecond, Logger: slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range 16 {
		key := fmt.Sprint("busy:", i)
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = cache.Fetch(ctx, c, key, func(context.Context) (string, error) { return "v", nil }, nil)
			}
		})
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(c.Statistics()); err != nil {
			return err
		}
	}
	return nil
}

// A line is one of the log, or statistics.
type line struct {
	Msg string `json:"msg"`
	cache.Statistics
}

// line reads the next line of a busy process.
func (r *reader) line() (l line) {
	r.Helper()
	if !r.says.Scan() {
		r.Fatalf("the process ended: %v", r.says.Err())
	}
	testenv.Must(r, json.Unmarshal(r.says.Bytes(), &l))
	return l
}

// until adds to the log until a line satisfies found.
func (r *reader) until(log []string, found func(line) bool) ([]string, line) {
	r.Helper()
	for {
		l := r.line()
		if l.Msg != "" {
			log = append(log, l.Msg)
		}
		if found(l) {
			return log, l
		}
	}
}

// A process that is stopped repeatedly reports that, and does not report Redis as away.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	options, err := redis.ParseURL(r.URL)
	testenv.Must(t, err)
	link := newLink(t, options.Addr)
	p := startProcess(t, busyVariable, strings.Replace(r.URL, options.Addr, link.Addr(), 1))
	t.Cleanup(func() { _ = p.process.Signal(syscall.SIGCONT) })
	statistics := func(log []string) ([]string, line) {
		p.order("statistics")
		return p.until(log, func(l line) bool { return l.Msg == "" })
	}
	var log []string
	var s line
	// A stop may meet no command in flight.
	for rounds := 0; rounds < 5 || s.Stalled < 5; rounds++ {
		for before := s.L2Hits; s.L2Hits < before+100; {
			log, s = statistics(log)
		}
		testenv.Must(t, p.process.Signal(syscall.SIGSTOP))
		time.Sleep(busyStop) // how long the fault lasts
		testenv.Must(t, p.process.Signal(syscall.SIGCONT))
		log, s = statistics(log)
	}
	const away, stalled = "Redis is away: every call loads", "commands to Redis timed out because this process did not run"
	count := func(message string) (n int) {
		for _, msg := range log {
			if msg == message {
				n++
			}
		}
		return n
	}
	if count(away) != 0 || count(stalled) != 1 {
		t.Fatalf("with a healthy Redis: %q", log)
	}
	testenv.Must(t, link.Swallow())
	log, _ = p.until(nil, func(l line) bool { return l.Msg == away })
	link.Calm(t.Context())
	log, _ = p.until(log, func(l line) bool { return l.Msg == "Redis is back" })
	if count(away) != 1 {
		t.Errorf("with a black hole: %q", log)
	}
}
