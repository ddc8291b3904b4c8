package caches

import (
	"bytes"
	"context"
	"runtime"
	"strings"
)

// A call is a Get that runs concurrently with the race.
type call struct {
	id    string // of its goroutine, as a stack names it
	done  chan struct{}
	value string
	err   error
}

// beside starts a Get in a new goroutine.
func beside(ctx context.Context, p process, key string, load loader) *call {
	c, begun := &call{done: make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(c.done)
		var stack [64]byte
		text := string(stack[:runtime.Stack(stack[:], false)])
		c.id = text[:strings.Index(text, "[")] // goroutine 42
		close(begun)
		c.value, c.err = p.Get(ctx, key, load)
	}()
	<-begun
	return c
}

func (c *call) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// rest returns when the call has ended or waits in a function. By then the call has arrived, and
// does nothing until another load ends. Libraries do not report this, so rest reads the goroutine's
// stack.
func (c *call) rest(ctx context.Context, function string) error {
	return until(ctx, func() (bool, error) {
		return c.isDone() || function != "" && strings.Contains(c.waitsIn(), function), nil
	})
}

// waitsIn returns the innermost function of the call's goroutine, without those of the runtime.
func (c *call) waitsIn() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	at := bytes.Index(all, []byte("\n"+c.id+"["))
	if at < 0 {
		return ""
	}
	stack, _, _ := bytes.Cut(all[at+1:], []byte("\n\n"))
	for line := range strings.Lines(string(stack)) {
		switch {
		case strings.HasPrefix(line, "goroutine "), strings.HasPrefix(line, "\t"),
			strings.HasPrefix(line, "runtime."), strings.HasPrefix(line, "internal/"), strings.HasPrefix(line, "sync.runtime_"):
		default:
			return line
		}
	}
	return ""
}
