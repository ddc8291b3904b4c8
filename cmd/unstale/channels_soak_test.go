//go:build soak

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// opensWithin is the time that operations.md states: until L1 opens, after a worker of another channel
// is gone.
const opensWithin = 15 * time.Second

// follows waits until a write is read, and checks that memory does not keep the value before it.
func follows(t *testing.T, c *cache.Cache, row *atomic.Int64) {
	t.Helper()
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.Fetch(t.Context(), c, "thing:1", func(context.Context) (int64, error) { return row.Load(), nil }, nil)
		return err == nil && got == row.Load()
	})
}

// startOn starts a worker whose map has the channel.
func (w *world) startOn(channel string) *running {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte("publish: {channel: \""+channel+"\"}\n"+thingMap), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.env["UNSTALE_MAP"] = file
	return w.start("--worker", "on-"+channel)
}

// A rolling restart to another channel, and back, while the other worker is frozen or killed: no L1
// keeps an old value, and readers open within the time that operations.md states. Until then they
// name the worker. A worker that continues after it was frozen publishes on both channels.
func TestRolloutToAnotherChannel(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"frozen": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, back %t", name, back), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				var row atomic.Int64
				row.Store(1)
				before, after := w.cacheOn("v1"), w.cacheOn("v2")
				both := []*cache.Cache{before, after}
				opens := func(c *cache.Cache, channel string) {
					t.Helper()
					testenv.Eventually(t, "memory to open on "+channel, func() bool { return c.Healthy() == nil })
				}
				writes := func(n int) {
					t.Helper()
					for range n {
						for _, c := range both {
							follows(t, c, &row)
						}
						row.Add(1)
						w.enqueue(1)
						testenv.Eventually(t, "the row goes", func() bool { return w.count("cache_outbox") == 0 })
						for _, c := range both {
							follows(t, c, &row)
						}
					}
				}
				first := w.startOn("v1")
				opens(before, "v1")
				writes(1)
				gone, stays := first, after
				if back { // both work, and the new one is taken back
					gone, stays = w.startOn("v2"), before
					opens(after, "v2")
					writes(3)
				}
				began := time.Now()
				gone.signal(signal)
				if !back {
					w.startOn("v2")
					testenv.Eventually(t, "the reason", func() bool {
						err := after.Healthy()
						return err != nil && strings.Contains(err.Error(), `worker "on-v1" publishes only on "v1" (format event)`)
					})
				}
				writes(3)
				opens(stays, "the channel of the worker that is left")
				if took := time.Since(began); took > opensWithin {
					t.Errorf("opened after %s", took)
				} else {
					t.Logf("opened after %s", took)
				}
				writes(3)
				if signal == syscall.SIGSTOP {
					gone.signal(syscall.SIGCONT)
					writes(10)
					opens(before, "v1")
					opens(after, "v2")
					writes(3)
				}
			})
		}
	}
}
