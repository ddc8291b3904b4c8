package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
)

// write commits rows and returns their token.
func write(t testing.TB, db outbox.Beginner, invs ...outbox.Invalidation) outbox.Token {
	t.Helper()
	token, err := outbox.InTxToken(t.Context(), db, func(tx *sql.Tx, writes *outbox.Writes) error {
		return writes.Enqueue(t.Context(), tx, invs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func exec(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func checkSettled(t testing.TB, db *sql.DB, token outbox.Token, want bool) {
	t.Helper()
	if got, err := outbox.Settled(t.Context(), db, token); err != nil || got != want {
		t.Errorf("token %s: settled %t, %v; wanted %t", token, got, err, want)
	}
}

// ids returns the rows that a token waits for, according to the database: each of them alone keeps
// the token from being settled.
func ids(t testing.TB, db *sql.DB, token outbox.Token, among []uint64) (named []uint64) {
	t.Helper()
	exec(t, db, "DELETE FROM cache_outbox")
	for _, id := range among {
		exec(t, db, "INSERT INTO cache_outbox (id, entity, entity_id) VALUES (?, 'product', '1')", id)
		settled, err := outbox.Settled(t.Context(), db, token)
		if err != nil {
			t.Fatal(err)
		}
		if !settled {
			named = append(named, id)
		}
		exec(t, db, "DELETE FROM cache_outbox")
	}
	return named
}

// allIDs returns the ids in cache_outbox.
func allIDs(t testing.TB, db *sql.DB) (all []uint64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id, entity FROM cache_outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uint64
		var entity string
		if err := rows.Scan(&id, &entity); err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	return all
}

// A token names exactly the rows that were committed, with any distance between their IDs, and so
// does its text.
func TestTokenNamesItsRows(t *testing.T) {
	t.Parallel()
	for _, increment := range []int{1, 3} {
		t.Run(fmt.Sprint(increment), func(t *testing.T) {
			t.Parallel()
			env := migrated(t)
			conn, err := env.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exec(t, conn, "SET SESSION auto_increment_increment = ?, auto_increment_offset = ?", increment, increment)
			enqueue(t, env.DB, products(2)...)
			exec(t, env.DB, "DELETE FROM cache_outbox")
			var token outbox.Token
			// two statements in each of two transactions, with a row of another client between them
			for range 2 {
				written, err := outbox.InTxToken(t.Context(), conn, func(tx *sql.Tx, writes *outbox.Writes) error {
					if err := writes.Enqueue(t.Context(), tx, products(4)...); err != nil {
						return err
					}
					return writes.Enqueue(t.Context(), tx, products(1)...)
				})
				if err != nil {
					t.Fatal(err)
				}
				if token, err = token.Join(written); err != nil {
					t.Fatal(err)
				}
				if increment == 3 {
					exec(t, env.DB, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('other', '1')")
				}
			}
			var mine []uint64
			all := allIDs(t, env.DB)
			for _, id := range all {
				var entity string
				if err := env.DB.QueryRowContext(t.Context(), "SELECT entity FROM cache_outbox WHERE id = ?", id).Scan(&entity); err != nil {
					t.Fatal(err)
				}
				if entity == "product" {
					mine = append(mine, id)
				}
			}
			if len(mine) != 10 {
				t.Fatalf("the rows are %v", mine)
			}
			parsed, err := outbox.ParseToken(token.String())
			if err != nil {
				t.Fatal(err)
			}
			around := make([]uint64, mine[len(mine)-1]+4)
			for i := range around {
				around[i] = uint64(i + 1)
			}
			for name, token := range map[string]outbox.Token{"token": token, "text": parsed} {
				if named := ids(t, env.DB, token, around); fmt.Sprint(named) != fmt.Sprint(mine) {
					t.Errorf("the %s %s names %v, wanted %v", name, token, named, mine)
				}
			}
		})
	}
}

// Many rows are inserted with several statements, and the token is still short. Beyond its limit it
// names no rows, and is never settled.
func TestTokenOfManyRows(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(outbox.MaxTokenRows)...)
	if n := len(token.String()); n > 70 {
		t.Errorf("%d bytes: %s", n, token)
	}
	checkSettled(t, env.DB, token, false)
	exec(t, env.DB, "DELETE FROM cache_outbox ORDER BY id LIMIT 999")
	checkSettled(t, env.DB, token, false)
	exec(t, env.DB, "DELETE FROM cache_outbox")
	checkSettled(t, env.DB, token, true)
	many := write(t, env.DB, products(outbox.MaxTokenRows+1)...)
	exec(t, env.DB, "DELETE FROM cache_outbox")
	if settled, err := outbox.Settled(t.Context(), env.DB, many); settled || !errors.Is(err, outbox.ErrTooManyRows) {
		t.Errorf("settled %t, %v", settled, err)
	}
	joined, err := many.Join(token)
	if again, err2 := outbox.ParseToken(joined.String()); err != nil || err2 != nil || !strings.HasSuffix(again.String(), ".~") {
		t.Errorf("joined: %s, %v, %v", again, err, err2)
	}
}
