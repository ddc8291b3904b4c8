package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// A claim holds its rows against other claims, and releases them unchanged.
func TestClaimSkipsWhatOthersHold(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(10)...)
	one, two := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)

	small := storetest.Limits
	small.Rows = 4
	a := storetest.Claim(t, one, small)
	b := storetest.Claim(t, two, storetest.Limits)
	if len(a.Rows) != 4 || len(b.Rows) != 6 || a.Rows[0].EntityID != "1" || b.Rows[0].EntityID != "5" {
		t.Fatalf("claimed %d and %d rows", len(a.Rows), len(b.Rows))
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	c := storetest.Claim(t, one, storetest.Limits)
	if len(c.Rows) != 4 {
		t.Errorf("after the release: %d rows", len(c.Rows))
	}
	for _, open := range []*store.Claim{b, c} {
		if err := open.Settle(t.Context(), store.Settlement{Done: storetest.IDs(open.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := storetest.Count(t, env.DB, "cache_outbox"); n != 0 {
		t.Errorf("%d rows left", n)
	}
	if found, err := one.Queue.Waiting(t.Context()); found || err != nil {
		t.Errorf("waiting: %v, %v", found, err)
	}
}

// Uncommitted rows are not visible. Rows that commit late, below rows that were settled long ago,
// are claimed.
func TestLateCommitIsClaimed(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	late, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Enqueue(t.Context(), late, outbox.Invalidation{Entity: "product", ID: "late"}); err != nil {
		t.Fatal(err)
	}
	const others = 10_000
	storetest.Enqueue(t, env.DB, storetest.Products(others)...)
	done := 0
	for done < others {
		c := storetest.Claim(t, s, storetest.Limits)
		for _, r := range c.Rows {
			if r.EntityID == "late" {
				t.Fatal("claimed before its commit")
			}
		}
		done += len(c.Rows)
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	c := storetest.Claim(t, s, storetest.Limits)
	if len(c.Rows) != 1 || c.Rows[0].EntityID != "late" || c.Rows[0].ID != 1 {
		t.Errorf("claimed %+v", c.Rows)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// Large parameters are fetched within the byte limit. Parameters above the limit for one row are
// not fetched.
func TestClaimIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	for i, kib := range []int{1, 40, 10 << 10, 40, 40} {
		_, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', ?, CONCAT('{\"a\":\"', REPEAT('x', ?), '\"}'))",
			fmt.Sprint(i), kib<<10)
		if err != nil {
			t.Fatal(err)
		}
	}
	c := storetest.Claim(t, s, store.ClaimLimits{Rows: 100, Bytes: 100 << 10, ParamsBytes: 64 << 10})
	var got []string
	for _, r := range c.Rows {
		got = append(got, fmt.Sprintf("%s:%d:%v", r.EntityID, len(r.Params)>>10, r.Unread()))
	}
	if want := "[0:1:false 1:40:false 2:0:true 3:40:false]"; fmt.Sprint(got) != want {
		t.Errorf("claimed %v, wanted %s", got, want)
	}
	if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, env.DB, "cache_outbox"); n != 1 {
		t.Errorf("%d rows left, wanted one, beyond the limit", n)
	}
}

// Dead and delayed rows are exactly as the application wrote them, no matter which table they came
// from.
func TestSettleKeepsRowsAsTheyWere(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	const params = `{"price": 1.10, "big":18446744073709551616, "name":"\u0639\u0631\u0628\u064a \ud83d\ude00"}`
	for _, id := range []string{"gone", "later", "dead", "left"} {
		storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: id, RawParams: []byte(params), Trace: "t-" + id})
	}
	c := storetest.Claim(t, s, storetest.Limits)
	err := c.Settle(t.Context(), store.Settlement{
		Done:       []uint64{c.Rows[0].ID},
		Delays:     []store.Delay{{ID: c.Rows[1].ID, Attempts: 3, Reason: "redis_refused", Error: "NOPERM"}},
		Dead:       []store.DeadRow{{ID: c.Rows[2].ID, Reason: "unknown_entity", Error: "it is \"odd\"; DROP TABLE x\n"}},
		Repeats:    []store.Repeat{{ID: c.Rows[0].ID, After: time.Hour}},
		Sweeps:     []store.Sweep{{Kind: store.SweepPattern, Name: "a\xff*"}},
		Journal:    []store.JournalEntry{{ID: c.Rows[0].ID, Entity: "product", EntityID: "gone", Keys: []string{"k"}}},
		MapVersion: "0123456789ab",
	})
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{
		"cache_outbox":         "[4 left t-left]",
		"cache_outbox_delayed": "[2 later t-later 1 gone t-gone]",
		"cache_outbox_dead":    "[3 dead t-dead]",
	} {
		if got := contents(t, env.DB, table, params); got != want {
			t.Errorf("%s: %s, wanted %s", table, got, want)
		}
	}
	var reason, text, version string
	if err := env.DB.QueryRow("SELECT reason, error, map_version FROM cache_outbox_dead").Scan(&reason, &text, &version); err != nil {
		t.Fatal(err)
	}
	if reason != "unknown_entity" || text != "it is \"odd\"; DROP TABLE x\n" || version != "0123456789ab" {
		t.Errorf("dead letter: %q, %q, %q", reason, text, version)
	}
	sweeps, err := s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(sweeps) != 1 || sweeps[0].Name != "a\xff*" {
		t.Errorf("sweeps: %+v, %v", sweeps, err)
	}
	checkDelayed(t, env.DB, s)
}

// contents lists first ID, entity ID and trace in order of ID, and checks that the parameters have
// the same bytes.
func contents(t *testing.T, db *sql.DB, table, params string) string {
	t.Helper()
	first := "first_id"
	if table == "cache_outbox" {
		first = "id"
	}
	order := " ORDER BY entity_id DESC"
	rows, err := db.Query("SELECT " + first + ", entity_id, trace, params FROM " + table + order)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, entityID, trace, got string
		if err := rows.Scan(&id, &entityID, &trace, &got); err != nil {
			t.Fatal(err)
		}
		if got != params {
			t.Errorf("%s: parameters are now %s", table, got)
		}
		out = append(out, id, entityID, trace)
	}
	return fmt.Sprint(out)
}

// checkDelayed claims the delayed row that is due, delays it in place and dead-letters it.
func checkDelayed(t *testing.T, db *sql.DB, s *store.Store) {
	t.Helper()
	due := func() *store.Claim {
		c, err := s.Queue.ClaimDue(t.Context(), storetest.Limits)
		if err != nil || c == nil || len(c.Rows) != 1 {
			t.Fatalf("claim due rows: %+v, %v", c, err)
		}
		return c
	}
	c := due()
	if r := c.Rows[0]; r.EntityID != "later" || r.FirstID != 2 || r.Attempts != 3 || r.Repeated {
		t.Errorf("due row: %+v", r)
	}
	if err := c.Settle(t.Context(), store.Settlement{Delays: []store.Delay{{ID: c.Rows[0].ID, Attempts: 4}}}); err != nil {
		t.Fatal(err)
	}
	c = due()
	if c.Rows[0].Attempts != 4 {
		t.Errorf("attempts: %d", c.Rows[0].Attempts)
	}
	if err := c.Settle(t.Context(), store.Settlement{Dead: []store.DeadRow{{ID: c.Rows[0].ID, Reason: "redis_refused"}}}); err != nil {
		t.Fatal(err)
	}
	var first, attempts int
	if err := db.QueryRow("SELECT first_id, attempts FROM cache_outbox_dead WHERE entity_id = 'later'").Scan(&first, &attempts); err != nil || first != 2 || attempts != 4 {
		t.Errorf("dead-lettered with first id %d, %d attempts: %v", first, attempts, err)
	}
	// the repeat waits for an hour
	if state, err := s.Queue.PollState(t.Context()); state.Due || err != nil {
		t.Errorf("%+v, %v", state, err)
	}
}

// A settlement is atomic.
func TestSettleRollsBack(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(3)...)
	c := storetest.Claim(t, s, storetest.Limits)
	err := c.Settle(t.Context(), store.Settlement{
		Done:   append(storetest.IDs(c.Rows), 999),
		Sweeps: []store.Sweep{{Kind: store.SweepPattern, Name: "x*"}},
	})
	if want := "settle rows: delete: 3 of 4 claimed rows were there; does something else delete from cache_outbox?"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if a, b := storetest.Count(t, env.DB, "cache_outbox"), storetest.Count(t, env.DB, "cache_outbox_sweeps"); a != 3 || b != 0 {
		t.Errorf("%d rows, %d sweeps", a, b)
	}
}

// Times that plain SQL wrote may be centuries away in both directions.
func TestStatusOfAbsurdTimes(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	for _, c := range []struct {
		created, due string
		old, overdue bool
	}{
		{"9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999", false, false},
		{"1026-01-01 00:00:00", "1026-01-01 00:00:00", true, true},
	} {
		for _, stmt := range []string{
			"DELETE FROM cache_outbox", "DELETE FROM cache_outbox_delayed",
			"INSERT INTO cache_outbox (entity, entity_id, created_at) VALUES ('product', '1', '" + c.created + "')",
			"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('product', '1', '" + c.due + "')",
		} {
			if _, err := env.DB.Exec(stmt); err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.Overview.Status(t.Context())
		const century = 100 * 365 * 24 * time.Hour
		if err != nil || st.OldestAge > century != c.old || st.Overdue > century != c.overdue || st.OldestAge < 0 || st.Overdue < 0 || (st.Ahead != nil) == c.old {
			t.Errorf("%+v: %+v, %v", c, st, err)
		}
	}
}

func TestStatusCheckAndJournal(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	if err := s.Sessions.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	storetest.Enqueue(t, env.DB, storetest.Products(3)...)
	storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: "later", NotBefore: time.Now().Add(time.Hour)})
	c := storetest.Claim(t, s, store.ClaimLimits{Rows: 2, Bytes: 1 << 20, ParamsBytes: 1 << 10})
	if err := c.Settle(t.Context(), store.Settlement{
		Done:       storetest.IDs(c.Rows)[:1],
		Dead:       []store.DeadRow{{ID: c.Rows[1].ID, Reason: "unknown_entity"}},
		Journal:    []store.JournalEntry{{ID: c.Rows[0].ID, Entity: "product", EntityID: "1"}},
		MapVersion: "m",
	}); err != nil {
		t.Fatal(err)
	}
	st, err := s.Overview.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if st.Waiting != 1 || st.Delayed != 1 || st.Dead["unknown_entity"] != 1 || st.OldestAge <= 0 || st.Overdue != 0 ||
		st.LastBatch == nil || st.LastBatch.Rows != 1 || st.LastBatch.Worker != "test" {
		t.Errorf("status: %+v", st)
	}
	for want := int64(0); want <= 1; want++ { // young rows stay, old ones are deleted
		n, err := s.Journal.ExpireJournal(t.Context(), time.Hour, 1)
		if err != nil || n != want {
			t.Errorf("expired %d, %v; wanted %d", n, err, want)
		}
		if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET settled_at = settled_at - INTERVAL 2 HOUR"); err != nil {
			t.Fatal(err)
		}
	}
}

// One process at a time has the sweep lock, and loses it with its connection.
func TestSweepLock(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	one, two := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	// as in a copy of the schema without data
	if _, err := env.DB.Exec("DELETE FROM cache_outbox_sweeper"); err != nil {
		t.Fatal(err)
	}
	lock, err := one.Sweeps.TrySweepLock(t.Context())
	if err != nil || lock == nil || lock.Check(t.Context()) != nil {
		t.Fatalf("take: %v, %v", lock, err)
	}
	if other, err := two.Sweeps.TrySweepLock(t.Context()); other != nil || err != nil {
		t.Errorf("taken twice: %v, %v", other, err)
	}
	lock.Release()
	lock, err = two.Sweeps.TrySweepLock(t.Context())
	if err != nil || lock == nil {
		t.Fatalf("take a lock that was dropped: %v, %v", lock, err)
	}
	if n := testenv.KillTransactions(t, env.DB); n != 1 {
		t.Fatalf("%d transactions", n)
	}
	for free := false; !free; { // the server rolls back at some later time; go test has a limit
		other, err := one.Sweeps.TrySweepLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if free = other != nil; free {
			other.Release()
		}
	}
	if err := lock.Check(t.Context()); err == nil {
		t.Error("the lock of a connection that was killed is held")
	}
	lock.Release()
}

// A request that waits for its second sweep comes again once its lease time and its hold time have
// passed, and not before.
func TestSettlingSweeps(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	requests := []store.Sweep{
		{Kind: store.SweepPattern, Name: "a*"}, {Kind: store.SweepPattern, Name: "b*"}, {Kind: store.SweepPattern, Name: "held*", HoldMillis: 60_000},
	}
	if err := s.Sweeps.RequestSweeps(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	waiting, err := s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(waiting) != 3 || waiting[0].Age() < 0 {
		t.Fatal(waiting, err)
	}
	swept := store.Swept{Finished: waiting[:1], Settling: waiting[1:], SettleAfter: time.Hour, Position: storetest.Position("S", 1), MapVersion: "m"}
	if err := s.Sweeps.FinishSweeps(t.Context(), swept); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Sweeps.Sweeps(t.Context(), 10); len(now) != 0 || err != nil {
		t.Fatal(now, err)
	}
	if st, err := s.Overview.Status(t.Context()); err != nil || st.Sweeps != 2 || st.Settling != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
	if n := storetest.Count(t, env.DB, "cache_outbox_journal"); n != 1 {
		t.Errorf("%d batches in the journal", n)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeps SET requested_at = requested_at - INTERVAL 1 HOUR, not_before = not_before - INTERVAL 1 HOUR"); err != nil {
		t.Fatal(err)
	}
	again, err := s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(again) != 1 || again[0].Name != "b*" || again[0].Age() < time.Hour {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeps SET not_before = not_before - INTERVAL 1 MINUTE"); err != nil {
		t.Fatal(err)
	}
	again, err = s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(again) != 2 || again[1].Name != "held*" || again[1].Hold() != time.Minute {
		t.Errorf("after the hold time: %+v, %v", again, err)
	}
}

// Status shows a scan as long as its process runs.
func TestSweepProgress(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	status := func() *store.SweepProgress {
		t.Helper()
		st, err := s.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Scan
	}
	if p := status(); p != nil {
		t.Errorf("a scan is reported: %+v", p)
	}
	note := func(p store.SweepProgress) {
		t.Helper()
		if err := s.Sweeps.NoteProgress(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	note(store.SweepProgress{Kind: store.SweepSet, Scanned: 5, Total: 9})
	if p := status(); p != nil {
		t.Errorf("sets are reported as a scan: %+v", p)
	}
	note(store.SweepProgress{Patterns: 7})
	note(store.SweepProgress{Patterns: 7, Scanned: 250, Total: 1000, Unlinked: 3, ForMicros: 10_000_000})
	p := status()
	if p == nil || p.Patterns != 7 || p.Scanned != 250 || p.Unlinked != 3 || p.Worker == "" || p.For() < 10*time.Second {
		t.Fatalf("%+v", p)
	}
	if left, ok := p.Left(); !ok || left < 29*time.Second || left > time.Minute {
		t.Errorf("%v left, %v", left, ok)
	}
	note(store.SweepProgress{Patterns: 7, Scanned: 250, Total: 1000, ForMicros: 10_000_000, Unsure: true})
	if left, ok := status().Left(); ok {
		t.Errorf("%v left although the time is unknown", left)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeper SET noted_at = noted_at - INTERVAL 1 MINUTE"); err != nil {
		t.Fatal(err)
	}
	if p := status(); p != nil {
		t.Errorf("a scan without updates: %+v", p)
	}
	note(store.SweepProgress{Patterns: 7})
	if err := s.Sweeps.EndProgress(t.Context(), store.SweepPattern); err != nil || status() != nil {
		t.Errorf("a scan that has ended: %+v, %v", status(), err)
	}
}
