package main

import (
	"bytes"
	"context"
	"runtime"
	"strings"
)

// A call is a Get that runs beside the race.
type call struct {
	id    string // of its goroutine, as a stack names it
	done  chan struct{}
	value string
	err   error
}

// beside begins a Get in a goroutine of its own.
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

// rest returns when the call is over or waits in a function: it has come by then, and does nothing until somebody else's
// load is over. Libraries do not tell, so that the goroutine's stack has to.
func (c *call) rest(ctx context.Context, function string) error {
	return until(ctx, func() (bool, error) {
		return c.isDone() || function != "" && strings.Contains(c.waitsIn(), function), nil
	})
}

// waitsIn is the innermost function of the call's goroutine, without those of the runtime.
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
