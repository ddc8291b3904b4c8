package testenv

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// notes collects messages for the user who runs the tests. Its lines begin with "test servers: ".
type notes struct {
	mu   sync.Mutex
	out  io.Writer
	said map[string]bool
	used map[string]bool // "MySQL 9.7.4 (local)"
}

var run = &notes{out: os.Stderr}

// say prints a line, once.
func (n *notes) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said[line] {
		return
	}
	if n.said == nil {
		n.said = map[string]bool{}
	}
	n.said[line] = true
	fmt.Fprintln(n.out, "test servers: "+line)
}

// use records for the summary that a server was used.
func (n *notes) use(name, version string, from source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used == nil {
		n.used = map[string]bool{}
	}
	n.used[fmt.Sprintf("%s %s (%s)", name, version, from)] = true
}

// summary returns the last line, empty if no test used a server.
func (n *notes) summary() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(n.used)), ", ")
}
