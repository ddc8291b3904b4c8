package examples

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// crashVariable has the crash of a process that runs this test binary: see orderAndCrash.
const crashVariable = "UNSTALE_TEST_ORDER_CRASH"

// A crash kills a process that creates an order at a step. Larger numbers than it has kill nothing.
type crash struct {
	Step          int
	DSN, URL, Key string
}

// orderAndCrash is the life of such a process. It prints the step that it dies at, or the answer.
func orderAndCrash(text string) error {
	var c crash
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	var mu sync.Mutex
	step := 0
	s, err := openOrderShop(c.DSN, c.URL, func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		if step++; step == c.Step {
			fmt.Print(name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	if err != nil {
		return err
	}
	answer := s.order(context.Background(), 1, c.Key, twoOf42)
	mu.Lock() // it has answered
	fmt.Print(answer)
	return nil
}

// A stepHook does for a client of Redis what stepping does for MySQL.
type stepHook struct{ step func(name string) error }

func (h stepHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h stepHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return around(h.step, cmd.Name(), func() error { return next(ctx, cmd) })
	}
}

func (h stepHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return around(h.step, cmds[0].Name(), func() error { return next(ctx, cmds) })
	}
}

// run returns what the process prints, and whether it was killed.
func (c crash) run(t *testing.T) (says string, killed bool) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = theirs, os.Stderr
	ended, err := servers.Start(cmd)
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = <-ended
	var exit *exec.ExitError
	killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if err != nil && !killed {
		t.Fatal(err)
	}
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(said), killed
}

// The process is killed before and after each command that it sends. Two clients that then repeat
// the request in parallel get the same response, of the only order.
func TestOrderSurvivesCrashes(t *testing.T) {
	t.Parallel()
	o := newOrderWorld(t)
	clients := []*orderShop{o.open(o.url, noStep), o.open(o.url, noStep)}
	steps := map[bool][]string{} // by whether the order existed after the crash
	for step := 1; ; step++ {
		c := crash{step, o.dsn, o.url, fmt.Sprintf("the-key-of-step-%d", step)}
		says, killed := c.run(t)
		if !killed {
			if want := o.created(1, c.Key, step); says != want {
				t.Errorf("without a crash: got %q, created was %q", says, want)
			}
			break
		}
		var n int
		if err := o.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE request_key = ?", c.Key).Scan(&n); err != nil {
			t.Fatal(err)
		}
		steps[n == 1] = append(steps[n == 1], says)
		var answers [2]string
		var group sync.WaitGroup
		for i, s := range clients {
			group.Go(func() { answers[i] = s.order(t.Context(), 1, c.Key, twoOf42) })
		}
		group.Wait()
		if want := o.created(1, c.Key, step); answers != [2]string{want, want} {
			t.Errorf("after a crash %s: got %q, created was %q", says, answers, want)
		}
	}
	has := func(existed bool, name string) {
		t.Helper()
		for _, step := range steps[existed] {
			if strings.HasPrefix(step, name) {
				return
			}
		}
		t.Errorf("no crash %q, order created: %t; there were %q", name, existed, steps[existed])
	}
	for _, name := range []string{"BEGIN", "INSERT INTO orders", "UPDATE products", "UPDATE orders", "INSERT INTO cache_outbox"} {
		has(false, "before "+name)
		has(false, "after "+name)
	}
	has(false, "before COMMIT")
	has(true, "after COMMIT")
	has(true, "before evalsha") // the lease of the copy, and the copy
	has(true, "after evalsha")
}
