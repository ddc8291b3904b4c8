package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/outbox"
)

// dump returns a table without the columns that a retry may change.
func dump(t *testing.T, db *sql.DB, columns, table string) string {
	t.Helper()
	var text sql.NullString
	query := "SELECT GROUP_CONCAT(CONCAT_WS('|', " + columns + ") ORDER BY id SEPARATOR ';') FROM " + table
	if err := db.QueryRow(query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text.String
}

func deadIDs(t *testing.T, s *store.Store, q store.DeadQuery) (ids []string) {
	t.Helper()
	letters, err := s.Actions.DeadLetters(t.Context(), q, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		ids = append(ids, l.EntityID)
	}
	return ids
}

func nobody(int) {}

// A retry puts rows back under new IDs, due immediately. All other columns stay as they are, no
// matter which table the rows died in. Rows that die again keep their first ID.
func TestRetryKeepsTheFirstID(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	const kept = "entity, entity_id, COALESCE(params, 'none'), trace, created_at, %s, %s"
	storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: "1", RawParams: []byte(`{"a":1.10,  "b":18446744073709551615}`), Trace: "t"},
		outbox.Invalidation{Entity: "☃", ID: "\n' %"})
	want := dump(t, env.DB, fmt.Sprintf(kept, "id", "0"), "cache_outbox")
	storetest.DeadLetter(t, s, false, "unknown_entity")
	if _, err := env.DB.Exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id, attempts, repeated) VALUES
('product', 'scheduled', UTC_TIMESTAMP(6), 0, 0, 0), ('product', 'failed', UTC_TIMESTAMP(6), 7, 8, 0), ('product', 'repeat', UTC_TIMESTAMP(6), 1, 0, 1)`); err != nil {
		t.Fatal(err)
	}
	want += ";" + dump(t, env.DB, fmt.Sprintf(kept, "first_id", "repeated"), "cache_outbox_delayed")
	storetest.DeadLetter(t, s, true, "redis_refused")
	for range 2 {
		done, err := s.Actions.RetryDead(t.Context(), store.DeadQuery{}, nobody)
		if err != nil || len(done) != 5 {
			t.Fatalf("retried %v, %v", done, err)
		}
		if n := storetest.Count(t, env.DB, "cache_outbox_dead") + storetest.Count(t, env.DB, "cache_outbox"); n != 0 {
			t.Errorf("%d rows are elsewhere", n)
		}
		if got := dump(t, env.DB, fmt.Sprintf(kept, "first_id", "repeated"), "cache_outbox_delayed"); got != want {
			t.Errorf("got\n%s\nwanted\n%s", got, want)
		}
		if n := storetest.Count(t, env.DB, "cache_outbox_delayed WHERE attempts > 0 OR due_at > UTC_TIMESTAMP(6) OR id <= 3"); n != 0 {
			t.Errorf("%d rows have attempts, or wait, or an old id", n)
		}
		storetest.DeadLetter(t, s, true, "unknown_entity")
	}
}

// A row that has taken the ID of a dead letter meanwhile does not block its retry.
func TestRetryWhenTheIDIsTaken(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(3)...)
	storetest.DeadLetter(t, s, false, "unknown_entity")
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (2, 'coupon', 'x')"); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Actions.RetryDead(t.Context(), store.DeadQuery{}, nobody); err != nil || len(done) != 3 {
		t.Fatal(done, err)
	}
	if got := dump(t, env.DB, "id, entity, entity_id", "cache_outbox"); got != "2|coupon|x" {
		t.Errorf("in the outbox: %s", got)
	}
	if got := dump(t, env.DB, "first_id, entity_id", "cache_outbox_delayed"); got != "1|1;2|2;3|3" {
		t.Errorf("put back: %s", got)
	}
}

// Rows that no table accepts stay, and the error names them. The other rows go back, no matter
// which table they came from.
func TestRetryOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(5)...)
	storetest.DeadLetter(t, s, false, "unknown_entity")
	for _, stmt := range []string{
		"UPDATE cache_outbox_dead SET params = '{\"a\":' WHERE entity_id IN ('1', '3')",
		"UPDATE cache_outbox_dead SET attempts = 1 WHERE entity_id IN ('3', '4')", // these were delayed
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	done, err := s.Actions.RetryDead(t.Context(), store.DeadQuery{}, nobody)
	var bad *store.NotJSONError
	if !errors.As(err, &bad) || len(bad.IDs) != 2 || len(done) != 3 {
		t.Errorf("%v went back: %v", done, err)
	}
	if got := fmt.Sprint(deadIDs(t, s, store.DeadQuery{})); got != "[3 1]" {
		t.Errorf("%s are left", got)
	}
	if got := dump(t, env.DB, "entity_id", "cache_outbox_delayed"); got != "2;4;5" {
		t.Errorf("%s are back", got)
	}
	age(t, env.DB)
	if done, err := s.Actions.DiscardDead(t.Context(), store.DeadQuery{}, nobody); err != nil || len(done) != 2 {
		t.Errorf("discarded %v, %v", done, err)
	}
}

// age makes dead letters old enough to be discarded.
func age(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec("UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 1 HOUR"); err != nil {
		t.Fatal(err)
	}
}

// A write token never reports a row as settled whose keys were not unlinked: its dead letter cannot
// be discarded while a reader may have the token. The others can.
func TestDiscardLeavesTheLettersOfTokens(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	token, err := outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		return writes.Enqueue(t.Context(), tx, storetest.Products(4)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.DeadLetter(t, s, false, "unknown_entity")
	for _, other := range []string{"repeated = 1 WHERE entity_id = '1'", "first_id = 0 WHERE entity_id = '2'", "died_at = died_at - INTERVAL 301 SECOND WHERE entity_id = '3'"} {
		if _, err := env.DB.Exec("UPDATE cache_outbox_dead SET " + other); err != nil {
			t.Fatal(err)
		}
	}
	done, err := s.Actions.DiscardDead(t.Context(), store.DeadQuery{}, nobody)
	if len(done) != 3 || err == nil || !strings.Contains(err.Error(), "died less than 5m0s ago, and write tokens would report their rows as settled") {
		t.Errorf("discarded %v, %v", done, err)
	}
	if settled, err := outbox.Settled(t.Context(), env.DB, token); settled || !errors.Is(err, outbox.ErrDead) {
		t.Errorf("settled %t, %v", settled, err)
	}
	age(t, env.DB)
	if done, err := s.Actions.DiscardDead(t.Context(), store.DeadQuery{}, nobody); err != nil || len(done) != 1 {
		t.Errorf("then discarded %v, %v", done, err)
	}
}

// Each field of the filter, and all together.
func TestDeadQuery(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(2)...)
	storetest.DeadLetter(t, s, false, "unknown_entity")
	storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "coupon", ID: "3"})
	storetest.DeadLetter(t, s, false, "too_many_keys")
	if _, err := env.DB.Exec("UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 2 HOUR, map_version = 'm0' WHERE entity_id = '1'"); err != nil {
		t.Fatal(err)
	}
	var coupon uint64 // IDs have gaps
	if err := env.DB.QueryRow("SELECT id FROM cache_outbox_dead WHERE entity = 'coupon'").Scan(&coupon); err != nil {
		t.Fatal(err)
	}
	for want, q := range map[string]store.DeadQuery{
		"3 2 1": {},
		"2 1":   {Entity: "product"},
		"3":     {Reason: "too_many_keys"},
		"1":     {OlderThan: time.Hour},
		"3 2":   {NewerThan: time.Hour},
		"2":     {NewerThan: time.Hour, Entity: "product"},
		"3 1":   {IDs: []uint64{1, coupon, 99}},
		"":      {MapVersion: "' OR 1=1 -- "},
	} {
		if got := strings.Join(deadIDs(t, s, q), " "); got != want {
			t.Errorf("%+v: %q, wanted %q", q, got, want)
		}
		if n, _, err := s.Actions.CountDead(t.Context(), q); err != nil || n != len(strings.Fields(want)) {
			t.Errorf("%+v: counted %d, %v", q, n, err)
		}
	}
	if done, err := s.Actions.DiscardDead(t.Context(), store.DeadQuery{MapVersion: "m0"}, nobody); err != nil || !slices.Equal(done, []uint64{1}) {
		t.Errorf("discarded %v, %v", done, err)
	}
	if got := strings.Join(deadIDs(t, s, store.DeadQuery{}), " "); got != "3 2" {
		t.Errorf("%q are left", got)
	}
}

// Two operators who retry concurrently share the letters: neither fails, and none is put back
// twice.
func TestRetryBesideAnother(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	const rows = 1000
	storetest.Enqueue(t, env.DB, storetest.Products(rows)...)
	storetest.DeadLetter(t, storetest.Open(t, env.DSN), false, "unknown_entity")
	var group sync.WaitGroup
	total := make([]int, 2)
	for i := range total {
		operator := storetest.Open(t, env.DSN)
		group.Go(func() {
			done, err := operator.Actions.RetryDead(t.Context(), store.DeadQuery{}, nobody)
			if total[i] = len(done); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	back, distinct := storetest.Count(t, env.DB, "cache_outbox_delayed"), storetest.Count(t, env.DB, "(SELECT DISTINCT first_id FROM cache_outbox_delayed) AS d")
	if total[0]+total[1] != rows || back != rows || distinct != rows || storetest.Count(t, env.DB, "cache_outbox_dead") != 0 {
		t.Errorf("%d and %d retried, %d rows are back, %d of them different", total[0], total[1], back, distinct)
	}
}

// Rows that die during a retry stay dead, and the claim that writes them does not wait.
func TestRetryLeavesWhatDiesMeanwhile(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(500)...)
	storetest.DeadLetter(t, s, false, "unknown_entity")
	done, err := s.Actions.RetryDead(t.Context(), store.DeadQuery{}, func(total int) {
		if total == 200 {
			storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "late", ID: "late"})
			storetest.DeadLetter(t, s, false, "unknown_entity")
		}
	})
	if err != nil || len(done) != 500 {
		t.Errorf("retried %d, %v", len(done), err)
	}
	if got := deadIDs(t, s, store.DeadQuery{}); !slices.Equal(got, []string{"late"}) {
		t.Errorf("%q are dead", got)
	}
}

// A retry that is interrupted reports what it did, and the rest stays.
func TestRetryIsInterrupted(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(500)...)
	storetest.DeadLetter(t, s, false, "unknown_entity")
	ctx, cancel := context.WithCancel(t.Context())
	done, err := s.Actions.RetryDead(ctx, store.DeadQuery{}, func(int) { cancel() })
	if !errors.Is(err, context.Canceled) || len(done) != 200 {
		t.Errorf("retried %d, %v", len(done), err)
	}
	if back, left := storetest.Count(t, env.DB, "cache_outbox_delayed"), storetest.Count(t, env.DB, "cache_outbox_dead"); back != 200 || left != 300 {
		t.Errorf("%s", fmt.Sprint(back, left))
	}
}
