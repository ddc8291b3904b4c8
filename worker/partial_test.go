package worker_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// partMap has a lookup that is slow while the table switch is set.
const partMap = `
version: 1
publish: {channel: "cache:invalidate"}
params:
  category: {lookup: {by: [id], sql: "SELECT product, category FROM categories WHERE product IN (?) AND (SELECT IF(slow, SLEEP(5), 0) FROM switch) = 0"}}
entities:
  product:
    params: [category]
    keys: ["shop:product:{id}", "shop:category:{category}"]
    patterns: ["shop:pages:{id}:*", "shop:list:{category}:*"]
    sets: ["tag:product:{id}"]
    hold: 1h
    repeat: [1h]
`

func partWorld(t *testing.T, slow int) *world {
	t.Helper()
	w := newWorld(t, partMap)
	w.exec("CREATE TABLE categories (product INT, category INT)")
	w.exec("INSERT INTO categories VALUES (7, 70)")
	w.exec("CREATE TABLE switch (slow INT)")
	w.exec("INSERT INTO switch VALUES (?)", slow)
	return w
}

// wantLeftBeside is wantLeft, tombstones left aside.
func wantLeftBeside(t *testing.T, w *world, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(w.left(), func(key string) bool { return strings.HasPrefix(key, "lock:hold:") })
	if !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Errorf("%q are left, wanted %q", got, want)
	}
}

// journal lists the entries of rows with their names, those that are partial in brackets.
func (w *world) journal(s *store.Store) (list []string) {
	w.t.Helper()
	err := s.Journal.ReadJournal(w.t.Context(), store.JournalQuery{}, func(b store.Batch, entries []store.JournalEntry) error {
		for _, e := range entries {
			if e.IsSweep() {
				continue
			}
			text := strings.Join(slices.Concat(e.Keys, e.Patterns, e.Sets), " ")
			if e.Partial {
				text = "(" + text + ")"
			}
			list = append(list, fmt.Sprint(e.ID, " ", e.HoldMillis, " ", text))
		}
		return nil
	}, func(store.DamagedBatch) { w.t.Error("a batch is damaged") })
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

const (
	partDone  = "1 3600000 (shop:product:7 shop:pages:7:* tag:product:7)"
	wholeDone = "1 3600000 shop:product:7 shop:category:70 shop:pages:7:* shop:list:70:* tag:product:7"
	partText  = "; applied without lookups: keys 1, patterns 1, sets 1; the others may be stale"
)

// Sentence 6: a row whose lookup is too slow has the part without lookups applied at its first
// attempt, and not again until the lookup succeeds. Then the whole row is applied, including its
// tombstones and its repeats. Until then its token is not settled.
func TestSlowLookupAppliesTheRest(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	r := w.worker(worker.Config{})
	token, err := outbox.InTxToken(t.Context(), w.db, func(tx *sql.Tx, writes *outbox.Writes) error {
		return writes.Enqueue(t.Context(), tx, outbox.Invalidation{Entity: "product", ID: "7"})
	})
	if err != nil {
		t.Fatal(err)
	}
	wantUnsettled := func() {
		t.Helper()
		if settled, err := outbox.Settled(t.Context(), w.db, token); settled || err != nil {
			t.Errorf("the token is settled: %v, %v", settled, err)
		}
	}
	again := func() {
		t.Helper()
		w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6) WHERE repeated = 0")
		r.drain(t)
	}
	e := w.listen()
	w.set("shop:product:7", "shop:category:70", "shop:pages:7:1", "shop:list:70:1")
	r.drain(t)
	wantLeftBeside(t, w, "shop:category:70", "shop:list:70:1")
	w.checkTombstone("shop:product:7")
	wantUnsettled()
	if keys, patterns := e.heard(2); fmt.Sprint(keys, patterns) != "[shop:product:7] [shop:pages:7:*]" {
		t.Errorf("heard %v %v", keys, patterns)
	}
	if n := w.count("cache_outbox_delayed WHERE attempts = 1 AND reason = 'lookup_failed' AND error LIKE '%" + partText + "'"); n != 1 {
		t.Errorf("%d rows say what was applied", n)
	}
	if n := w.count("cache_outbox_journal WHERE epoch <> '' AND row_count = 1"); n != 1 {
		t.Errorf("%d batches can be healed", n)
	}
	if n := w.count("cache_outbox_sweeps WHERE first_low = 1 AND swept_at IS NOT NULL"); n != 2 {
		t.Errorf("%d sweeps were carried out for the row", n)
	}

	w.endHold("shop:product:7")
	w.set("shop:product:7")
	again()
	// the second attempt applies nothing
	wantLeftBeside(t, w, "shop:category:70", "shop:list:70:1", "shop:product:7")
	if n := w.count("cache_outbox_delayed WHERE attempts = 2 AND error LIKE '%" + partText + "'"); n != 1 {
		t.Errorf("%d rows still say what was applied", n)
	}
	wantUnsettled()

	w.exec("UPDATE switch SET slow = 0")
	again()
	wantLeftBeside(t, w)
	w.checkTombstone("shop:product:7")
	if got := w.journal(r.store); !slices.Equal(got, []string{partDone, wholeDone}) {
		t.Errorf("the journal has %q", got)
	}
	if n := w.count("cache_outbox_delayed WHERE repeated = 1"); n != 1 {
		t.Errorf("%d repeats", n)
	}
	if settled, err := outbox.Settled(t.Context(), w.db, token); !settled || err != nil {
		t.Errorf("the token is settled: %v, %v", settled, err)
	}
}

// The dead letter of a row whose lookup is broken lists the applied part, and so does one that
// comes after many attempts.
func TestBrokenLookupAppliesTheRest(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"broken": true, "slow": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := partWorld(t, 1)
			if broken {
				w.exec("DROP TABLE categories")
			}
			r := w.worker(worker.Config{MaxAttempts: 2})
			w.set("shop:product:7", "shop:category:70")
			w.enqueue(outbox.Invalidation{Entity: "product", ID: "7"})
			r.drain(t)
			w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
			r.drain(t)
			wantLeftBeside(t, w, "shop:category:70")
			checkDead(t, w, map[string][2]string{"7": {"lookup_failed", partText}})
			if got := w.journal(r.store); !slices.Equal(got, []string{partDone}) {
				t.Errorf("the journal has %q", got)
			}
		})
	}
}

// A row whose part fits the limits, but not the whole plan, is dead-lettered when its lookup
// succeeds. The dead letter lists the applied part.
func TestAPartOfARowThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	w.writeMap(strings.Replace(partMap, "version: 1", "version: 1\nlimits: {keys_per_row: 3}", 1))
	r := w.worker(worker.Config{})
	w.set("shop:product:7", "shop:category:70", "shop:list:70:1")
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "7"})
	r.drain(t)
	wantLeftBeside(t, w, "shop:category:70", "shop:list:70:1")
	w.exec("UPDATE switch SET slow = 0")
	w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
	r.drain(t)
	wantLeftBeside(t, w, "shop:category:70", "shop:list:70:1")
	checkDead(t, w, map[string][2]string{"7": {"too_many_keys", "more than 3 keys"}})
	if n := w.count("cache_outbox_dead WHERE error LIKE '%" + partText + "'"); n != 1 {
		t.Errorf("%d dead letters say what was applied", n)
	}
	if got := w.journal(r.store); !slices.Equal(got, []string{partDone}) {
		t.Errorf("the journal has %q", got)
	}
}

// A row is not applied in part if nothing of it can be known: an ID that was cut, another fault, or
// a plan that is too large. Nor is one whose keys all need the lookup.
func TestNothingIsAppliedInPart(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	w.exec("DROP TABLE categories")
	w.writeMap(strings.Replace(partMap, "version: 1", "version: 1\nlimits: {keys_per_row: 2}", 1) +
		"  listed: {params: [category], patterns: [\"shop:list:{category}:*\"]}\n")
	r := w.worker(worker.Config{})
	cut := strings.Repeat("x", outbox.MaxID+1)
	w.set("shop:product:"+cut, "shop:product:8", "shop:list:70:1")
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', ?), ('product', '8'), ('listed', '9')", cut)
	r.drain(t)
	wantLeftBeside(t, w, "shop:list:70:1", "shop:product:8", "shop:product:"+cut)
	checkDead(t, w, map[string][2]string{cut: {"bad_parameter", "cut"}, "8": {"lookup_failed", "category"}, "9": {"lookup_failed", "category"}})
	if got := w.journal(r.store); len(got) > 0 {
		t.Errorf("the journal has %q", got)
	}
	if n := w.count("cache_outbox_dead WHERE error LIKE '%applied%'"); n != 0 {
		t.Errorf("%d dead letters say that something was applied", n)
	}
}

// A key that Redis refuses, or a failed lookup of another row, changes nothing for the other rows.
func TestAPartThatRedisRefuses(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	w.exec("DROP TABLE categories")
	server := w.onOwnRedis()
	if err := w.redis.Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "resetkeys", "~shop:product:8", "~lock:*", "~unstale:*").Err(); err != nil {
		t.Fatal(err)
	}
	w.url = "redis://worker:secret@" + server.Addr()
	r := w.worker(worker.Config{})
	w.set("shop:product:7", "shop:product:8")
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "7"},
		outbox.Invalidation{Entity: "product", ID: "8", Params: map[string]any{"category": []int{}}})
	if _, err := r.DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLeftBeside(t, w, "shop:product:7")
	checkDead(t, w, map[string][2]string{"7": {string(invalidation.LookupFailed), "category"}})
	if n := w.count("cache_outbox_dead WHERE error LIKE '%applied%'"); n != 0 {
		t.Errorf("%d dead letters say that something was applied", n)
	}
	if n := w.count("cache_outbox_sweeps WHERE first_low = 1"); n != 0 {
		t.Errorf("%d sweeps were requested for a row of which nothing was applied", n)
	}
}

// Sentence 11: if Redis loses the applied part of a row, it is applied again from the partial entry
// of the journal while the row still waits. Each of its two sweeps is a separate batch there.
func TestAPartIsHealed(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	past := &past{w, w.onOwnRedis()}
	w.set("shop:product:7", "shop:category:70", "shop:pages:7:1")
	past.remember()
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "7"})
	later := worker.Config{RetryDelay: 5 * time.Minute}
	r := w.worker(later)
	r.drain(t)
	wantLeftBeside(t, w, "shop:category:70")
	if rows, sweeps := w.count("cache_outbox_journal WHERE epoch <> '' AND row_count = 1"), w.count("cache_outbox_journal WHERE epoch <> '' AND row_count = 0"); rows != 1 || sweeps != 2 {
		t.Errorf("%d batches of rows and %d of sweeps can be healed", rows, sweeps)
	}
	past.goBack()
	again := w.worker(later)
	again.drain(t)
	wantLeftBeside(t, w, "shop:category:70")
	w.checkTombstone("shop:product:7")
	if n := healed(t, again); n != 3 {
		t.Errorf("%d batches were healed", n)
	}
	if n := w.count("cache_outbox_delayed WHERE attempts = 1 AND error LIKE '%" + partText + "'"); n != 1 {
		t.Errorf("%d rows wait", n)
	}
}
