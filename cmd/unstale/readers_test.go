package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
)

// status names readers whose code was generated from another map than the workers use.
func TestStatusOfReadersOfAnotherMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := thingMap + "reads: { thing: { key: \"shop:thing:{thing_id}\", ttl: 1m } }\n"
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("map.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.fill(1)
	w.start()
	same, other := cache.NewReadMap(m.Reads().Hash()), cache.NewReadMap("another")
	for process, reads := range map[string]*cache.ReadMap{"web-1": same, "web-2": other} {
		c := w.reader(process)
		read := reads.Entry("thing", cache.Options{TTL: time.Minute}).Read("shop:thing:1")
		if _, err := cache.FetchRead(t.Context(), c, read, func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	w.enqueue(1) // readers report after a message with keys
	var told struct {
		Verdict string
		Causes  []struct{ Cause, What string }
	}
	testenv.Eventually(t, "the reader of another map to be named", func() bool {
		r := call(t, w.env, "status", "--json")
		if err := json.Unmarshal([]byte(r.out), &told); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, c := range told.Causes {
			if c.Cause == "readers_differ" {
				for _, want := range []string{"1 reader with code of another map", "web-2 has the reads " + other.Version(), "the workers have " + m.Reads().Version()} {
					if !strings.Contains(c.What, want) {
						t.Errorf("no %q in %q", want, c.What)
					}
				}
				return true
			}
		}
		return false
	})
	if r := call(t, w.env, "history", "--key", "shop:thing:1"); !strings.Contains(r.out, "\nread: thing, key shop:thing:{thing_id}\n") {
		t.Errorf("history: %+v", r)
	}
	if same.Version() != m.Reads().Version() {
		t.Errorf("reader %s, worker %s", same.Version(), m.Reads().Version())
	}
}
