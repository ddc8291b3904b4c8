package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
)

var limits = store.ClaimLimits{Rows: 1000, Bytes: 8 << 20, ParamsBytes: 64 << 10}

// migrated is an empty database with the outbox in it.
func migrated(t testing.TB) *testenv.Database {
	t.Helper()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	return env
}

// parse reads a DSN that is well.
func parse(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := store.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func openStore(t testing.TB, dsn string) *store.Store {
	t.Helper()
	return openPatientStore(t, dsn, 3*time.Second)
}

func openPatientStore(t testing.TB, dsn string, claimTimeout time.Duration) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{MySQL: parse(t, dsn), Worker: "test", ClaimTimeout: claimTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func enqueue(t testing.TB, db *sql.DB, invs ...outbox.Invalidation) {
	t.Helper()
	err := outbox.InTx(t.Context(), db, func(tx *sql.Tx) error { return outbox.Enqueue(t.Context(), tx, invs...) })
	if err != nil {
		t.Fatal(err)
	}
}

func products(n int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "product", ID: fmt.Sprint(i + 1)}
	}
	return invs
}

func claim(t testing.TB, s *store.Store, l store.ClaimLimits) *store.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		t.Fatal("nothing to claim")
	}
	return c
}

func count(t testing.TB, db *sql.DB, table string) int {
	t.Helper()
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func ids(rows []store.ClaimedRow) []uint64 {
	out := make([]uint64, len(rows))
	for i := range rows {
		out[i] = rows[i].ID
	}
	return out
}

// A claim holds its rows against other claims, and gives them back untouched.
func TestClaimSkipsWhatOthersHold(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	enqueue(t, env.DB, products(10)...)
	one, two := openStore(t, env.DSN), openStore(t, env.DSN)

	small := limits
	small.Rows = 4
	a := claim(t, one, small)
	b := claim(t, two, limits)
	if len(a.Rows) != 4 || len(b.Rows) != 6 || a.Rows[0].EntityID != "1" || b.Rows[0].EntityID != "5" {
		t.Fatalf("claimed %d and %d rows", len(a.Rows), len(b.Rows))
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	c := claim(t, one, limits)
	if len(c.Rows) != 4 {
		t.Errorf("after the release: %d rows", len(c.Rows))
	}
	for _, open := range []*store.Claim{b, c} {
		if err := open.Settle(t.Context(), store.Settlement{Done: ids(open.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, env.DB, "cache_outbox"); n != 0 {
		t.Errorf("%d rows left", n)
	}
	if found, err := one.Waiting(t.Context()); found || err != nil {
		t.Errorf("waiting: %v, %v", found, err)
	}
}

// What is not committed is not there; what commits late, below rows that were settled long ago, is claimed.
func TestLateCommitIsClaimed(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	late, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Enqueue(t.Context(), late, outbox.Invalidation{Entity: "product", ID: "late"}); err != nil {
		t.Fatal(err)
	}
	const others = 10_000
	enqueue(t, env.DB, products(others)...)
	done := 0
	for done < others {
		c := claim(t, s, limits)
		for _, r := range c.Rows {
			if r.EntityID == "late" {
				t.Fatal("claimed before its commit")
			}
		}
		done += len(c.Rows)
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	c := claim(t, s, limits)
	if len(c.Rows) != 1 || c.Rows[0].EntityID != "late" || c.Rows[0].ID != 1 {
		t.Errorf("claimed %+v", c.Rows)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// Large parameters are fetched within the byte limit, and larger ones than a row may have not at all.
func TestClaimIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	for i, kib := range []int{1, 40, 10 << 10, 40, 40} {
		_, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', ?, CONCAT('{\"a\":\"', REPEAT('x', ?), '\"}'))",
			fmt.Sprint(i), kib<<10)
		if err != nil {
			t.Fatal(err)
		}
	}
	c := claim(t, s, store.ClaimLimits{Rows: 100, Bytes: 100 << 10, ParamsBytes: 64 << 10})
	var got []string
	for _, r := range c.Rows {
		got = append(got, fmt.Sprintf("%s:%d:%v", r.EntityID, len(r.Params)>>10, r.Unread()))
	}
	if want := "[0:1:false 1:40:false 2:0:true 3:40:false]"; fmt.Sprint(got) != want {
		t.Errorf("claimed %v, wanted %s", got, want)
	}
	if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, env.DB, "cache_outbox"); n != 1 {
		t.Errorf("%d rows left, wanted the one beyond the limit", n)
	}
}

// Dead and delayed rows are exactly what the application wrote, whichever table they came from.
func TestSettleKeepsRowsAsTheyWere(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	const params = `{"price": 1.10, "big":18446744073709551616, "name":"\u0639\u0631\u0628\u064a \ud83d\ude00"}`
	for _, id := range []string{"gone", "later", "dead", "left"} {
		enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: id, RawParams: []byte(params), Trace: "t-" + id})
	}
	c := claim(t, s, limits)
	err := c.Settle(t.Context(), store.Settlement{
		Done:       []uint64{c.Rows[0].ID},
		Delays:     []store.Delay{{ID: c.Rows[1].ID, Attempts: 3, Reason: "redis_refused", Error: "NOPERM"}},
		Dead:       []store.DeadRow{{ID: c.Rows[2].ID, Reason: "unknown_entity", Error: "it is \"odd\"; DROP TABLE x\n"}},
		Repeats:    []store.Repeat{{ID: c.Rows[0].ID, After: time.Hour}},
		Sweeps:     []store.Sweep{{Kind: store.SweepPattern, Name: "a\xff*"}},
		Journal:    []store.Entry{{ID: c.Rows[0].ID, Entity: "product", EntityID: "gone", Keys: []string{"k"}}},
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
	sweeps, err := s.Sweeps(t.Context(), 10)
	if err != nil || len(sweeps) != 1 || sweeps[0].Name != "a\xff*" {
		t.Errorf("sweeps: %+v, %v", sweeps, err)
	}
	checkDelayed(t, env.DB, s)
}

// contents lists first id, entity id and trace in order of id, and checks that the parameters are the same bytes.
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

// checkDelayed claims the delayed row that is due, puts it off in place and dead-letters it.
func checkDelayed(t *testing.T, db *sql.DB, s *store.Store) {
	t.Helper()
	due := func() *store.Claim {
		c, err := s.ClaimDue(t.Context(), limits)
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
	if state, err := s.PollState(t.Context()); state.Due || err != nil { // the repeat waits for an hour
		t.Errorf("%+v, %v", state, err)
	}
}

// A settlement is all or nothing.
func TestSettleRollsBack(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(3)...)
	c := claim(t, s, limits)
	err := c.Settle(t.Context(), store.Settlement{
		Done:   append(ids(c.Rows), 999),
		Sweeps: []store.Sweep{{Kind: store.SweepPattern, Name: "x*"}},
	})
	if want := "settle rows: delete: 3 of 4 claimed rows were there; does something else delete from cache_outbox?"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if a, b := count(t, env.DB, "cache_outbox"), count(t, env.DB, "cache_outbox_sweeps"); a != 3 || b != 0 {
		t.Errorf("%d rows, %d sweeps", a, b)
	}
}

// Times that plain SQL wrote may be centuries away in both directions.
func TestStatusOfAbsurdTimes(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
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
		st, err := s.Status(t.Context())
		const century = 100 * 365 * 24 * time.Hour
		if err != nil || st.OldestAge > century != c.old || st.Overdue > century != c.overdue || st.OldestAge < 0 || st.Overdue < 0 || (st.Ahead != nil) == c.old {
			t.Errorf("%+v: %+v, %v", c, st, err)
		}
	}
}

func TestStatusCheckAndJournal(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	enqueue(t, env.DB, products(3)...)
	enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: "later", NotBefore: time.Now().Add(time.Hour)})
	c := claim(t, s, store.ClaimLimits{Rows: 2, Bytes: 1 << 20, ParamsBytes: 1 << 10})
	if err := c.Settle(t.Context(), store.Settlement{
		Done:       ids(c.Rows)[:1],
		Dead:       []store.DeadRow{{ID: c.Rows[1].ID, Reason: "unknown_entity"}},
		Journal:    []store.Entry{{ID: c.Rows[0].ID, Entity: "product", EntityID: "1"}},
		MapVersion: "m",
	}); err != nil {
		t.Fatal(err)
	}
	st, err := s.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if st.Waiting != 1 || st.Delayed != 1 || st.Dead["unknown_entity"] != 1 || st.OldestAge <= 0 || st.Overdue != 0 ||
		st.LastBatch == nil || st.LastBatch.Rows != 1 || st.LastBatch.Worker != "test" {
		t.Errorf("status: %+v", st)
	}
	for want := int64(0); want <= 1; want++ { // young rows stay, old ones go
		n, err := s.ExpireJournal(t.Context(), time.Hour, 1)
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
	env := migrated(t)
	one, two := openStore(t, env.DSN), openStore(t, env.DSN)
	if _, err := env.DB.Exec("DELETE FROM cache_outbox_sweeper"); err != nil { // as a copy of the schema alone would have it
		t.Fatal(err)
	}
	lock, err := one.TrySweepLock(t.Context())
	if err != nil || lock == nil || lock.Check(t.Context()) != nil {
		t.Fatalf("take: %v, %v", lock, err)
	}
	if other, err := two.TrySweepLock(t.Context()); other != nil || err != nil {
		t.Errorf("taken twice: %v, %v", other, err)
	}
	lock.Release()
	lock, err = two.TrySweepLock(t.Context())
	if err != nil || lock == nil {
		t.Fatalf("take what was dropped: %v, %v", lock, err)
	}
	if n := testenv.KillTransactions(t, env.DB); n != 1 {
		t.Fatalf("%d transactions", n)
	}
	for free := false; !free; { // the server rolls back in its own time; go test has a limit
		other, err := one.TrySweepLock(t.Context())
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

// A request that is kept for its settling sweep comes again when the time since it was made has passed, and its hold, and
// not before.
func TestSettlingSweeps(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	requests := []store.Sweep{
		{Kind: store.SweepPattern, Name: "a*"}, {Kind: store.SweepPattern, Name: "b*"}, {Kind: store.SweepPattern, Name: "held*", HoldMillis: 60_000},
	}
	if err := s.RequestSweeps(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	waiting, err := s.Sweeps(t.Context(), 10)
	if err != nil || len(waiting) != 3 || waiting[0].Age() < 0 {
		t.Fatal(waiting, err)
	}
	swept := store.Swept{Finished: waiting[:1], Settling: waiting[1:], SettleAfter: time.Hour, Position: position("S", 1), MapVersion: "m"}
	if err := s.FinishSweeps(t.Context(), swept); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Sweeps(t.Context(), 10); len(now) != 0 || err != nil {
		t.Fatal(now, err)
	}
	if st, err := s.Status(t.Context()); err != nil || st.Sweeps != 2 || st.Settling != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
	if n := count(t, env.DB, "cache_outbox_journal"); n != 1 {
		t.Errorf("%d batches in the journal", n)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeps SET requested_at = requested_at - INTERVAL 1 HOUR, not_before = not_before - INTERVAL 1 HOUR"); err != nil {
		t.Fatal(err)
	}
	again, err := s.Sweeps(t.Context(), 10)
	if err != nil || len(again) != 1 || again[0].Name != "b*" || again[0].Age() < time.Hour {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeps SET not_before = not_before - INTERVAL 1 MINUTE"); err != nil {
		t.Fatal(err)
	}
	again, err = s.Sweeps(t.Context(), 10)
	if err != nil || len(again) != 2 || again[1].Name != "held*" || again[1].Hold() != time.Minute {
		t.Errorf("a hold later: %+v, %v", again, err)
	}
}

// Status tells of a scan as long as its process does.
func TestSweepProgress(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	status := func() *store.SweepProgress {
		t.Helper()
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Scan
	}
	if p := status(); p != nil {
		t.Errorf("there is a scan: %+v", p)
	}
	note := func(p store.SweepProgress) {
		t.Helper()
		if err := s.NoteProgress(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	note(store.SweepProgress{Kind: store.SweepSet, Scanned: 5, Total: 9})
	if p := status(); p != nil {
		t.Errorf("sets are taken for a scan: %+v", p)
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
		t.Errorf("%v left of what nobody knows", left)
	}
	if _, err := env.DB.Exec("UPDATE cache_outbox_sweeper SET noted_at = noted_at - INTERVAL 1 MINUTE"); err != nil {
		t.Fatal(err)
	}
	if p := status(); p != nil {
		t.Errorf("a scan that is silent: %+v", p)
	}
	note(store.SweepProgress{Patterns: 7})
	if err := s.EndProgress(t.Context(), store.SweepPattern); err != nil || status() != nil {
		t.Errorf("a scan that is over: %+v, %v", status(), err)
	}
}

// ownMigrated is a migrated database on a server that no other test uses.
func ownMigrated(t testing.TB) *testenv.Database {
	t.Helper()
	env := testenv.OwnDatabase(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	return env
}
