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
	"github.com/unstale/unstale/outbox"
)

// bury claims everything that waits and buries it for a reason.
func bury(t *testing.T, s *store.Store, due bool, reason string) {
	t.Helper()
	claim := s.Claim
	if due {
		claim = s.ClaimDue
	}
	c, err := claim(t.Context(), limits)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	settlement := store.Settlement{MapVersion: "m1"}
	for _, r := range c.Rows {
		settlement.Deaths = append(settlement.Deaths, store.Death{ID: r.ID, Reason: reason, Error: "why"})
	}
	if err := c.Settle(t.Context(), settlement); err != nil {
		t.Fatal(err)
	}
}

// dump is a table without the columns that a retry may change.
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
	letters, err := s.DeadLetters(t.Context(), q, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		ids = append(ids, l.EntityID)
	}
	return ids
}

func nobody(int) {}

// A retry puts rows back exactly as they were, whatever table they died in.
func TestRetryIsExact(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	const hot, later = "id, entity, entity_id, COALESCE(params, 'none'), trace, created_at", "entity, entity_id, COALESCE(params, 'none'), trace, created_at, first_id, repeated"
	enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: "1", RawParams: []byte(`{"a":1.10,  "b":18446744073709551616}`), Trace: "t"},
		outbox.Invalidation{Entity: "☃", ID: "\n' %"})
	before := dump(t, env.DB, hot, "cache_outbox")
	bury(t, s, false, "unknown_entity")
	if _, err := env.DB.Exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id, attempts, repeated) VALUES
('product', 'scheduled', UTC_TIMESTAMP(6), 0, 0, 0), ('product', 'failed', UTC_TIMESTAMP(6), 7, 8, 0), ('product', 'repeat', UTC_TIMESTAMP(6), 1, 0, 1)`); err != nil {
		t.Fatal(err)
	}
	delayed := dump(t, env.DB, later, "cache_outbox_delayed")
	bury(t, s, true, "redis_refused")
	if n := count(t, env.DB, "cache_outbox_dead"); n != 5 {
		t.Fatalf("%d dead letters", n)
	}
	done, err := s.RetryDead(t.Context(), store.DeadQuery{}, nobody)
	if err != nil || len(done) != 5 {
		t.Fatalf("retried %v, %v", done, err)
	}
	if after := dump(t, env.DB, hot, "cache_outbox"); after != before {
		t.Errorf("in the outbox:\n%s\nwanted\n%s", after, before)
	}
	if after := dump(t, env.DB, later, "cache_outbox_delayed"); after != delayed {
		t.Errorf("delayed:\n%s\nwanted\n%s", after, delayed)
	}
	if n := count(t, env.DB, "cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	if n := count(t, env.DB, "cache_outbox_delayed WHERE attempts > 0 OR due_at > UTC_TIMESTAMP(6)"); n != 0 {
		t.Errorf("%d delayed rows have attempts or wait", n)
	}
}

// A row whose id somebody else has by now gets a new one.
func TestRetryWhenTheIDIsTaken(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(3)...)
	bury(t, s, false, "unknown_entity")
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (2, 'coupon', 'x')"); err != nil {
		t.Fatal(err)
	}
	if done, err := s.RetryDead(t.Context(), store.DeadQuery{}, nobody); err != nil || len(done) != 3 {
		t.Fatal(done, err)
	}
	if got := dump(t, env.DB, "id, entity, entity_id", "cache_outbox"); got != "1|product|1;2|coupon|x;3|product|3;4|product|2" {
		t.Errorf("got %s", got)
	}
}

// The filter, each field and together.
// What no table takes stays, by name, and its neighbours go back, whichever table they came from.
func TestRetryOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(5)...)
	bury(t, s, false, "unknown_entity")
	for _, stmt := range []string{
		"UPDATE cache_outbox_dead SET params = '{\"a\":' WHERE entity_id IN ('1', '3')",
		"UPDATE cache_outbox_dead SET attempts = 1 WHERE entity_id IN ('3', '4')", // these were delayed
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	left := deadIDs(t, s, store.DeadQuery{})
	done, err := s.RetryDead(t.Context(), store.DeadQuery{}, nobody)
	var bad *store.NotJSONError
	if !errors.As(err, &bad) || len(bad.IDs) != 2 || len(done) != 3 {
		t.Errorf("of %v, %v went back: %v", left, done, err)
	}
	if got := fmt.Sprint(deadIDs(t, s, store.DeadQuery{})); got != "[3 1]" {
		t.Errorf("%s are left", got)
	}
	if hot, delayed := dump(t, env.DB, "entity_id", "cache_outbox"), dump(t, env.DB, "entity_id", "cache_outbox_delayed"); hot != "2;5" || delayed != "4" {
		t.Errorf("%s and %s are back", hot, delayed)
	}
}

func TestDeadQuery(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(2)...)
	bury(t, s, false, "unknown_entity")
	enqueue(t, env.DB, outbox.Invalidation{Entity: "coupon", ID: "3"})
	bury(t, s, false, "too_many_keys")
	if _, err := env.DB.Exec("UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 2 HOUR, map_version = 'm0' WHERE entity_id = '1'"); err != nil {
		t.Fatal(err)
	}
	var coupon uint64 // ids have gaps
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
		if n, err := s.CountDead(t.Context(), q); err != nil || n != len(strings.Fields(want)) {
			t.Errorf("%+v: counted %d, %v", q, n, err)
		}
	}
	if done, err := s.DiscardDead(t.Context(), store.DeadQuery{MapVersion: "m0"}, nobody); err != nil || !slices.Equal(done, []uint64{1}) {
		t.Errorf("discarded %v, %v", done, err)
	}
	if got := strings.Join(deadIDs(t, s, store.DeadQuery{}), " "); got != "3 2" {
		t.Errorf("%q are left", got)
	}
}

// Two operators who retry at once share the letters, a worker that buries meanwhile waits for nobody, and what it buries
// stays.
func TestRetryBesideOthers(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	const rows = 1000
	enqueue(t, env.DB, products(rows)...)
	bury(t, s, false, "unknown_entity")
	var late sync.Once
	var group sync.WaitGroup
	total := make([]int, 2)
	for i := range total {
		operator := openStore(t, env.DSN)
		group.Go(func() {
			done, err := operator.RetryDead(t.Context(), store.DeadQuery{}, func(int) {
				late.Do(func() {
					if _, err := env.DB.Exec(`INSERT INTO cache_outbox_dead (entity, entity_id, created_at, first_id, reason, error, map_version)
VALUES ('late', 'late', UTC_TIMESTAMP(6), 999999, 'unknown_entity', '', '')`); err != nil {
						t.Error(err)
					}
				})
			})
			total[i] = len(done)
			if err != nil && !store.IsContention(errors.Unwrap(err)) && !store.IsContention(err) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := count(t, env.DB, "cache_outbox"); n != total[0]+total[1] {
		t.Errorf("%d and %d retried, %d rows are back", total[0], total[1], n)
	}
	if _, err := s.RetryDead(t.Context(), store.DeadQuery{Entity: "product"}, nobody); err != nil {
		t.Fatal(err)
	}
	if n := count(t, env.DB, "(SELECT DISTINCT entity_id FROM cache_outbox) AS d"); n != rows || count(t, env.DB, "cache_outbox") != rows {
		t.Errorf("%d rows are back", n)
	}
	if got := deadIDs(t, s, store.DeadQuery{}); !slices.Equal(got, []string{"late"}) {
		t.Errorf("%q are dead", got)
	}
}

// A retry that is interrupted says what it did, and the rest stays.
func TestRetryIsInterrupted(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(500)...)
	bury(t, s, false, "unknown_entity")
	ctx, cancel := context.WithCancel(t.Context())
	done, err := s.RetryDead(ctx, store.DeadQuery{}, func(int) { cancel() })
	if !errors.Is(err, context.Canceled) || len(done) != 200 {
		t.Errorf("retried %d, %v", len(done), err)
	}
	if back, left := count(t, env.DB, "cache_outbox"), count(t, env.DB, "cache_outbox_dead"); back != 200 || left != 300 {
		t.Errorf("%s", fmt.Sprint(back, left))
	}
}
