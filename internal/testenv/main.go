package testenv

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/unstale/unstale/internal/servers"
)

// redisDial looks for an unavailable Redis, and sleeps for up to a second after its client is
// closed.
const redisDial = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

// Main runs the tests of a package, stops the servers that they shared, and prints the servers that
// were used. It fails if a goroutine is left, except those that a library leaves in the functions
// called leaks. Call it from TestMain. It does not return.
func Main(m *testing.M, leaks ...string) {
	code := m.Run()
	shared.closeAll()
	if summary := run.summary(); summary != "" {
		run.say("%s", summary)
	}
	if code == 0 {
		known := []goleak.Option{goleak.IgnoreAnyFunction(redisDial)}
		for _, function := range append(leaks, servers.LinkLeaks...) {
			known = append(known, goleak.IgnoreAnyFunction(function))
		}
		if err := goleak.Find(known...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// closers run at the end, last in, first out.
type closers struct {
	mu   sync.Mutex
	list []func() error
}

var shared closers

func (c *closers) add(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, f)
}

func (c *closers) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.list) - 1; i >= 0; i-- {
		if err := c.list[i](); err != nil {
			run.say("%v", err)
		}
	}
	c.list = nil
}
