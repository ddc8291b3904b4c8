package worker_test

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const askingMap = `
version: 1
publish: {channel: "cache:invalidate"}
lease: 1h
entities:
  plain: {keys: ["shop:plain:{id}"], patterns: ["shop:list:{list}:*"], sets: ["tag:{list}"], params: [list], repeat: [1ms]}
  short: {keys: ["shop:short:{id}"], patterns: ["shop:list:{list}:*"], params: [list], hold: 1s}
  long:  {keys: ["shop:long:{id}"], patterns: ["shop:list:{list}:*"], params: [list], hold: 90s}
`

// A request has the IDs of the rows that asked for it, and their longest hold. Repeats, and rows
// that were never in cache_outbox, are not included.
func TestASweepKnowsWhoAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, askingMap)
	r := w.worker(worker.Config{})
	asking := func(entity, id, list string) outbox.Invalidation {
		return outbox.Invalidation{Entity: entity, ID: id, Params: map[string]any{"list": list}}
	}
	w.enqueue(asking("short", "1", "a"), asking("long", "2", "a"), asking("short", "3", "a"), asking("plain", "4", "b"))
	w.exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, params, due_at) VALUES ('long', '5', '{"list":"c"}', UTC_TIMESTAMP(6))`)
	if _, err := r.DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
	if _, err := r.DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests, err := r.store.Sweeps.Sweeps(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, s := range requests {
		got[fmt.Sprintf("%s %s held %d ms for %d to %d", s.Kind, s.Name, s.HoldMillis, s.FirstLow, s.FirstHigh)]++
	}
	want := map[string]int{
		"pattern shop:list:a:* held 90000 ms for 1 to 3": 1,
		"pattern shop:list:b:* held 0 ms for 4 to 4":     1,
		"set tag:b held 0 ms for 4 to 4":                 1,
		"pattern shop:list:b:* held 0 ms for 0 to 0":     1,
		"set tag:b held 0 ms for 0 to 0":                 1,
		"pattern shop:list:c:* held 90000 ms for 0 to 0": 1,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v,\nwant %v", got, want)
	}
}
