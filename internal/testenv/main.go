package testenv

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// shared is what the tests of one binary have in common.
var shared struct {
	sync.Mutex
	used  []string // "MySQL 9.7.4 (local)", in order of first use
	close []func() // last in, first out
}

// Main runs the tests of a package, then stops the shared servers, prints
// which servers were used and fails if a goroutine is left. Call it from
// TestMain. It does not return.
func Main(m *testing.M) {
	code := m.Run()
	stopShared()
	if len(shared.used) > 0 {
		fmt.Fprintln(os.Stderr, "test servers: "+strings.Join(shared.used, ", "))
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	for i := len(shared.close) - 1; i >= 0; i-- {
		shared.close[i]()
	}
	shared.close = nil
}

// note remembers for the last line that a server was used, once.
func note(name, version string, from source) {
	line := fmt.Sprintf("%s %s (%s)", name, version, from)
	shared.Lock()
	defer shared.Unlock()
	for _, used := range shared.used {
		if used == line {
			return
		}
	}
	shared.used = append(shared.used, line)
}

// atEnd registers f to be run when all tests have ended.
func atEnd(f func()) {
	shared.Lock()
	defer shared.Unlock()
	shared.close = append(shared.close, f)
}
