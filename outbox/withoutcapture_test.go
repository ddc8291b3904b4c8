package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// The switch is off only during the function, with any outcome: on a pool with one connection, the
// next caller gets the same connection.
func TestWithoutCapture(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t).DB
	db.SetMaxOpenConns(1)
	state := func(q interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}) (s sql.NullString) {
		t.Helper()
		if err := q.QueryRowContext(t.Context(), "SELECT @unstale_capture").Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	failure := errors.New("failure")
	ctx, cancel := context.WithCancel(t.Context())
	for name, fn := range map[string]func() error{
		"done":   func() error { return nil },
		"failed": func() error { return failure },
		"panic":  func() error { panic(failure) },
		"ended":  func() error { cancel(); return failure },
	} {
		func() {
			defer func() { _ = recover() }()
			err := outbox.WithoutCapture(ctx, db, func(conn *sql.Conn) error {
				if s := state(conn); s.String != "off" {
					t.Errorf("%s: the switch is %q", name, s.String)
				}
				return fn()
			})
			if name != "done" && ctx.Err() == nil && !errors.Is(err, failure) {
				t.Errorf("%s: %v", name, err)
			}
		}()
		if s := state(db); s.Valid {
			t.Errorf("%s: then it is %q", name, s.String)
		}
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
	if err := outbox.WithoutCapture(t.Context(), db, func(conn *sql.Conn) error {
		var id int
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		_, _ = conn.ExecContext(t.Context(), "KILL CONNECTION_ID()")
		return nil
	}); err != nil {
		t.Error(err)
	}
	if s := state(db); s.Valid {
		t.Errorf("after a lost connection it is %q", s.String)
	}
}
