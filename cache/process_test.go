package cache_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// readerVariable has the address of Redis for a process that runs this test binary: see
// startReader.
const readerVariable = "UNSTALE_TEST_READER"

// A reader is another process with its own Cache. Its loader asks the test.
type reader struct {
	testing.TB
	process *os.Process
	orders  io.WriteCloser
	says    *bufio.Scanner
	killed  bool
}

// startReader starts a process that reads from the Redis of w until the test ends.
func (w *world) startReader() *reader { return startProcess(w, readerVariable, w.url) }

// startProcess starts this test's program again, with a variable that leads to another life.
func startProcess(w testing.TB, variable, url string) *reader {
	w.Helper()
	theirOrders, orders, err := os.Pipe()
	testenv.Must(w, err)
	says, theirs, err := os.Pipe()
	testenv.Must(w, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirOrders, theirs, os.Stderr
	ended, err := servers.Start(cmd)
	testenv.Must(w, err)
	testenv.Must(w, theirOrders.Close())
	testenv.Must(w, theirs.Close())
	r := &reader{TB: w, process: cmd.Process, orders: orders, says: bufio.NewScanner(says)}
	w.Cleanup(func() {
		_ = orders.Close() // which ends it
		if err := <-ended; !r.killed {
			testenv.Must(w, err)
		}
		_ = says.Close()
	})
	return r
}

// kill ends the process at once, as kill -9 does.
func (r *reader) kill() {
	r.Helper()
	r.killed = true
	testenv.Must(r, r.process.Kill())
	for r.says.Scan() { // until it has ended
	}
}

// fetch begins a fetch in the process.
func (r *reader) fetch(key string, tags ...string) {
	r.Helper()
	r.order(strings.Join(append([]string{key}, tags...), " "))
}

// load lets the loader return, which has begun.
func (r *reader) load(value string) {
	r.Helper()
	r.order(value)
}

func (r *reader) order(line string) {
	r.Helper()
	_, err := fmt.Fprintln(r.orders, line)
	testenv.Must(r, err)
}

// want checks the next line of the process: that it loads, or a value and its source.
func (r *reader) want(want string) {
	r.Helper()
	if !r.says.Scan() {
		r.Fatalf("the process ended, wanted %q: %v", want, r.says.Err())
	}
	if got := r.says.Text(); got != want {
		r.Fatalf("the process says %q, wanted %q", got, want)
	}
}

// readOnOrder is the life of such a process: a line with a key and tags is a fetch, the line after
// "loads" its value.
func readOnOrder(url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer client.Close()
	c, err := cache.New(cache.Config{Redis: client, Timeout: patient, Lease: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		got, err := cache.FetchResult(context.Background(), c, words[0], func(context.Context) (string, error) {
			fmt.Println("loads")
			orders.Scan()
			return orders.Text(), orders.Err()
		}, cache.Moderate.Tagged(words[1:]...))
		if err != nil {
			return err
		}
		fmt.Println(got.Value, "from", got.Source)
	}
	return orders.Err()
}

// A process that holds a lease is killed. Who waits for its load gets the lease when it has expired,
// loads, and stores.
func TestKilledHolderOfALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.cache(cache.Config{Lease: time.Minute}), w.startReader()
	there.fetch("k")
	there.want("loads")
	waiting := fetchBeside(t, here, "k", w.db.read, nil)
	testenv.Eventually(t, "the caller to miss", func() bool { return here.Statistics().Misses == 1 })
	there.kill()
	lease, _ := protocol.LeaseKey("k")
	if left := w.client.PTTL(t.Context(), lease).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the lease of the killed process lasts for %v", left)
	}
	select {
	case a := <-waiting:
		t.Errorf("%+v while the lease is held", a)
	default:
	}
	testenv.Must(t, w.client.PExpire(t.Context(), lease, time.Millisecond).Err()) // as a minute later
	wantAnswer(t, "the waiting caller", waiting, "old")
	wantFetch(t, "the next one", here, "k", w.db.read, nil, "old", cache.FromRedis)
}

// The loader that has read the old row and the callers that come after the invalidation are in
// different processes, either way round.
func TestRacesBetweenProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, key string
		tags      []string
		between   func(w *world)
	}{
		{"key", "k", nil, func(w *world) { w.commit("new", "k") }},
		{"tag", "k", []string{"t", "u"}, func(w *world) { w.commit("new", protocol.StampKey("t")) }},
		{"pattern", "shop:list:1", nil, func(w *world) {
			w.db.set("new")
			_, err := w.worker.Sweeper.Sweep(w.Context(), []string{"shop:list:*"}, nil)
			testenv.Must(w, err)
		}},
	} {
		policy := cache.Moderate.Tagged(c.tags...)
		t.Run("the loader there, "+c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			here, there := w.cache(cache.Config{Lease: time.Minute}), w.startReader()
			there.fetch(c.key, c.tags...)
			there.want("loads")
			c.between(w)
			late := fetchBeside(t, here, c.key, w.db.read, policy)
			testenv.Eventually(t, "the late caller to miss", func() bool { return here.Statistics().Misses == 1 })
			there.load("old")
			there.want("old from loader") // it came before the commit
			wantAnswer(t, "the caller from after", late, "new")
			there.fetch(c.key, c.tags...)
			there.want("new from Redis")
		})
		t.Run("the loader here, "+c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			here, there := w.cache(cache.Config{Lease: time.Minute}), w.startReader()
			p := w.db.paused()
			early := fetchBeside(t, here, c.key, p.load, policy)
			<-p.read
			c.between(w)
			there.fetch(c.key, c.tags...)
			if len(c.tags) == 0 { // the lease went too
				there.want("loads")
				there.load("new")
				there.want("new from loader")
			}
			close(p.release)
			wantAnswer(t, "the caller from before", early, "old")
			if len(c.tags) > 0 {
				there.want("loads")
				there.load("new")
				there.want("new from loader")
			}
			wantFetch(t, "afterwards", here, c.key, w.db.read, policy, "new", cache.FromRedis)
		})
	}
}
