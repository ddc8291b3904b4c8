package outbox_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/outbox"
)

type traceKey struct{}

// Rows without a trace get the trace of their context, in every way of enqueueing. A text that
// cannot be written is left out with the reason, and no write fails. The function is called once
// per call, and not at all if no row needs it. It answers only for the contexts of this test, since
// it is process-wide.
func TestSetTracer(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	asked := 0
	outbox.SetTracer(func(ctx context.Context) string {
		text, ours := ctx.Value(traceKey{}).(string)
		if ours {
			asked++
		}
		if text == "panic" {
			panic(text)
		}
		return text
	})
	t.Cleanup(func() { outbox.SetTracer(nil) })
	in := func(trace string, do func(ctx context.Context, tx *sql.Tx) error) {
		t.Helper()
		ctx := context.WithValue(t.Context(), traceKey{}, trace)
		if err := outbox.InTx(ctx, env.DB, func(tx *sql.Tx) error { return do(ctx, tx) }); err != nil {
			t.Errorf("%.40q: %v", trace, err)
		}
	}
	thing := outbox.Invalidation{Entity: "product", ID: "1"}
	own, later := thing, thing
	own.Trace, later.NotBefore = "own", time.Now().Add(time.Hour)
	in("of the request", func(ctx context.Context, tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, thing, own, later, thing) })
	in("with a token", func(ctx context.Context, tx *sql.Tx) error {
		return new(outbox.Writes).Enqueue(ctx, tx, thing)
	})
	if asked != 2 {
		t.Errorf("asked %d times for two calls", asked)
	}
	in("nobody needs it", func(ctx context.Context, tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, own) })
	if asked != 2 {
		t.Error("asked for rows that have a trace")
	}
	longest := strings.Repeat("é", outbox.MaxTrace)
	for _, trace := range []string{"", longest, longest + "x", "a\xff"} {
		in(trace, func(ctx context.Context, tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, thing) })
	}
	want := []string{
		"of the request", "own", "of the request", "with a token", "own",
		"", longest, "no trace: 129 characters are more than 128", `no trace: "a\xff" is not valid UTF-8`,
	}
	if got := traces(t, env.DB, "cache_outbox"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := traces(t, env.DB, "cache_outbox_delayed"); !slices.Equal(got, []string{"of the request"}) {
		t.Errorf("delayed: %q", got)
	}
	func() {
		defer func() {
			if recover() != "panic" {
				t.Error("a panic did not reach the caller")
			}
		}()
		in("panic", func(ctx context.Context, tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, thing) })
	}()
	outbox.SetTracer(nil)
	in("switched off", func(ctx context.Context, tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, thing) })
	if got := traces(t, env.DB, "cache_outbox"); len(got) != len(want)+1 || got[len(want)] != "" {
		t.Errorf("at the end: %q", got)
	}
}

// traces returns the traces of the rows of a table, sorted by ID.
func traces(t *testing.T, db *sql.DB, table string) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT trace FROM "+table+" ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var trace string
		if err := rows.Scan(&trace); err != nil {
			t.Fatal(err)
		}
		list = append(list, trace)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}
