package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/history"
)

// The stale entries of a key are in its timeline, and status counts them.
func TestHistoryOfStaleEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	add := func(key, after string, leased, unlinked, repaired int) {
		t.Helper()
		if _, err := w.db.ExecContext(t.Context(), "INSERT INTO cache_outbox_stale (found_at, worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, "+
			"unlinked_us, after_ms, ttl_ms, held, repaired) VALUES (UTC_TIMESTAMP(6) + INTERVAL "+after+", 'web-1', ?, 1, 'thing', '1', '', 'E', 1, ?, ?, 1000, 0, ?, ?)",
			key, leased, unlinked, leased == 0, repaired); err != nil {
			t.Fatal(err)
		}
	}
	add("shop:thing:1", "-30 MINUTE", 1_700_000_000_000_000, 1_700_000_000_001_500, 1)
	add("shop:thing:1", "0 SECOND", 0, 1_700_000_000_001_500, 1)
	add("shop:thing:2", "0 SECOND", 0, 1_700_000_000_001_500, 1)
	r := call(t, w.env, "history", "--key", "shop:thing:1")
	if !regexp.MustCompile(`(?s)^\S+  stale entry  row 1  worker web-1: leased 1.5ms before the UNLINK, unlinked again\n` +
		`\S+  batch .*\n\S+  stale entry  row 1  worker web-1: stored during a hold, unlinked again\nnow: `).MatchString(r.out) {
		t.Errorf("%+v", r)
	}
	var all history.Past
	if err := json.Unmarshal([]byte(call(t, w.env, "history", "--key", "shop:thing:1", "--since", "1m", "--json").out), &all); err != nil || len(all.Stale) != 1 || !all.Stale[0].Held {
		t.Errorf("%+v, %v", all, err)
	}
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "note: spot checks found 3 stale entries within an hour") {
		t.Errorf("%+v", r)
	}
	add("shop:thing:3", "0 SECOND", 0, 1_700_000_000_001_500, 0)
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "note: spot checks found 4 stale entries within an hour, which are gone") {
		t.Errorf("%+v", r)
	}
	if err := w.redis.Set(t.Context(), "shop:thing:3", "bare", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "status"); r.code != exitStale || !strings.Contains(r.out, "the entry of shop:thing:3 survived an UNLINK and is still in Redis; ") {
		t.Errorf("%+v", r)
	}
	// another entry of the key is as old if its lease is from before the UNLINK
	add("shop:thing:4", "0 SECOND", 1_700_000_000_000_000, 1_700_000_000_001_500, 0)
	for lease, word := range map[int]string{1_700_000_000_001_499: "1 other too; ", 1_700_000_000_001_501: "still in Redis; "} {
		if err := w.redis.Set(t.Context(), "shop:thing:4", fmt.Sprintf(`{"e":%d,"b":%d,"v":1}`, time.Now().UnixMilli(), lease), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if r := call(t, w.env, "status"); r.code != exitStale || !strings.Contains(r.out, word) {
			t.Errorf("%+v", r)
		}
	}
	delete(w.env, "REDIS_URL")
	if r := call(t, w.env, "status"); r.code != exitStale || !strings.Contains(r.out, "the entry of shop:thing:3 survived an UNLINK and may be in Redis until its TTL ends, and 1 other too; ") {
		t.Errorf("%+v", r)
	}
}
