package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// slowStore returns a store in slow-scan mode, which it does not leave.
func slowStore(t *testing.T, env *testenv.Database) *store.Store {
	t.Helper()
	s := storetest.Open(t, env.DSN)
	s.Queue.EveryScanIsSlow()
	for range 2 {
		if _, err := s.Queue.Waiting(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Queue.NoMoreListsOfAll()
	return s
}

// soon claims repeatedly until it gets rows.
func soon(t *testing.T, s *store.Store) *store.Claim {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		c, err := s.Queue.Claim(t.Context(), storetest.Limits)
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			return c
		}
	}
	t.Fatal("nothing to claim")
	return nil
}

// take claims, expects the given number of rows, and settles them.
func take(t *testing.T, s *store.Store, want int) {
	t.Helper()
	c := soon(t, s)
	if len(c.Rows) != want {
		t.Errorf("claimed %d rows, wanted %d", len(c.Rows), want)
	}
	if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
		t.Fatal(err)
	}
}

// takeAll settles the given number of rows, in as many claims as needed.
func takeAll(t *testing.T, s *store.Store, rows int) {
	t.Helper()
	for rows > 0 {
		c := soon(t, s)
		rows -= len(c.Rows)
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
}

// nothing checks that a claim and a poll find no row.
func nothing(t *testing.T, s *store.Store) {
	t.Helper()
	if c, err := s.Queue.Claim(t.Context(), storetest.Limits); c != nil || err != nil {
		t.Errorf("claimed %+v, %v", c, err)
	}
	if found, err := s.Queue.Waiting(t.Context()); found || err != nil {
		t.Errorf("waiting: %t, %v", found, err)
	}
}

// begun returns an open transaction with n rows in the outbox.
func begun(t *testing.T, env *testenv.Database, n int) *sql.Tx {
	t.Helper()
	tx, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Enqueue(t.Context(), tx, storetest.Products(n)...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// In slow-scan mode the head passes rows that are not committed or are held by others. They are
// found as soon as they can be claimed.
func TestStragglersAreClaimed(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := slowStore(t, env)
	late, never := begun(t, env, 3), begun(t, env, 2)
	storetest.Enqueue(t, env.DB, storetest.Products(5)...)
	other := storetest.Open(t, env.DSN)
	few := storetest.Limits
	few.Rows = 5
	held := storetest.Claim(t, other, few)
	storetest.Enqueue(t, env.DB, storetest.Products(7)...)
	take(t, s, 7)
	nothingYet, err := s.Queue.Claim(t.Context(), storetest.Limits)
	if nothingYet != nil || err != nil {
		t.Fatalf("claimed %+v, %v", nothingYet, err)
	}
	if n := s.Queue.Stragglers(); n != 10 {
		t.Errorf("%d stragglers, wanted 10", n)
	}
	for _, end := range []func() error{late.Commit, never.Rollback, held.Release} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	takeAll(t, s, 8)
	nothing(t, s)
	if n := s.Queue.Stragglers(); n != 0 {
		t.Errorf("%d stragglers are left", n)
	}
}

// Polls ask for few stragglers with a prepared statement, for more of them by ranges.
func TestPollsFindStragglers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 8, 9} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			env := storetest.Migrated(t)
			s := slowStore(t, env)
			never, late := begun(t, env, n-1), begun(t, env, 1)
			storetest.Enqueue(t, env.DB, storetest.Products(1)...)
			take(t, s, 1)
			nothing(t, s)
			testenv.Must(t, late.Commit())
			testenv.Eventually(t, "the poll that finds it", func() bool {
				found, err := s.Queue.Waiting(t.Context())
				testenv.Must(t, err)
				return found
			})
			takeAll(t, s, 1)
			testenv.Must(t, never.Rollback())
			nothing(t, s)
		})
	}
}

// A large transaction does not hold the head back, but excess stragglers do if they are too
// scattered.
func TestManyStragglers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gap  uint64 // between two IDs
		want uint64 // stragglers
	}{{gap: 1, want: 700}, {gap: 2, want: 500}} {
		t.Run(fmt.Sprint(c.gap), func(t *testing.T) {
			t.Parallel()
			env := storetest.Migrated(t)
			s := slowStore(t, env)
			late, err := env.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			query := "INSERT INTO cache_outbox (id, entity, entity_id) VALUES (1, 'product', 'x')"
			for i := range uint64(699) {
				query += fmt.Sprintf(", (%d, 'product', 'x')", 1+(i+1)*c.gap)
			}
			if _, err := late.Exec(query); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				storetest.Enqueue(t, env.DB, storetest.Products(10)...)
				take(t, s, 10)
				nothing(t, s)
				if n := s.Queue.Stragglers(); n != c.want {
					t.Errorf("%d stragglers, wanted %d", n, c.want)
				}
			}
			if err := late.Commit(); err != nil {
				t.Fatal(err)
			}
			takeAll(t, s, 700)
			nothing(t, s)
		})
	}
}

// A store that begins with an empty table begins behind the deleted rows, and a poll reports the
// next row.
func TestSlowScansOfAnEmptyTable(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(5)...)
	take(t, storetest.Open(t, env.DSN), 5)
	s := slowStore(t, env)
	nothing(t, s)
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if found, err := s.Queue.Waiting(t.Context()); !found || err != nil {
		t.Errorf("waiting: %t, %v", found, err)
	}
	take(t, s, 1)
	nothing(t, s)
}

// A row that appears below the head half a minute after the head passed, for example because its
// INSERT chose its ID, waits only for the next list of all IDs below the head.
func TestRowBelowTheHead(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(5)...)
	s := slowStore(t, env)
	take(t, s, 5)
	s.Queue.NoMoreRescans()
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (2, 'product', '2')"); err != nil {
		t.Fatal(err)
	}
	nothing(t, s)
	s.Queue.ListAllAgain()
	take(t, s, 1)
}

// Transactions begin, commit and roll back in any order, and two workers claim and settle all rows,
// some, or none. No matter where the head is, each committed row is settled once.
func TestHeadLosesNothing(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("slow %t, seed %d", slow, seed), func(t *testing.T) {
				t.Parallel()
				env := storetest.Migrated(t)
				stores := []*store.Store{storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)}
				if slow {
					stores = []*store.Store{slowStore(t, env), slowStore(t, env)}
				}
				r := rand.New(rand.NewPCG(seed, 5))
				var open []*sql.Tx
				rows, committed := map[*sql.Tx]int{}, 0
				settled := map[uint64]int{}
				end := func(i int) {
					tx := open[i]
					open = append(open[:i], open[i+1:]...)
					if r.IntN(4) == 0 {
						if err := tx.Rollback(); err != nil {
							t.Fatal(err)
						}
						return
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					committed += rows[tx]
				}
				settle := func(c *store.Claim, n int) {
					for _, row := range c.Rows[:n] {
						settled[row.ID]++
					}
					if err := c.Settle(context.Background(), store.Settlement{Done: storetest.IDs(c.Rows[:n])}); err != nil {
						t.Fatal(err)
					}
				}
				for range 150 {
					switch r.IntN(4) {
					case 0, 1:
						n := 1 + r.IntN(5)
						tx := begun(t, env, n)
						open, rows[tx] = append(open, tx), n
						if len(open) > 5 {
							end(r.IntN(len(open)))
						}
					case 2:
						if len(open) > 0 {
							end(r.IntN(len(open)))
						}
					case 3:
						few := storetest.Limits
						few.Rows = 1 + r.IntN(8)
						c, err := stores[r.IntN(2)].Queue.Claim(t.Context(), few)
						if err != nil {
							t.Fatal(err)
						}
						switch {
						case c == nil:
						case r.IntN(4) == 0:
							if err := c.Release(); err != nil {
								t.Fatal(err)
							}
						default:
							settle(c, 1+r.IntN(len(c.Rows)))
						}
					}
				}
				for len(open) > 0 {
					end(0)
				}
				for deadline := time.Now().Add(30 * time.Second); len(settled) < committed && time.Now().Before(deadline); {
					c, err := stores[0].Queue.Claim(t.Context(), storetest.Limits)
					if err != nil {
						t.Fatal(err)
					}
					if c != nil {
						settle(c, len(c.Rows))
					}
				}
				if len(settled) != committed || storetest.Count(t, env.DB, "cache_outbox") != 0 {
					t.Errorf("%d of %d rows were settled, %d are left", len(settled), committed, storetest.Count(t, env.DB, "cache_outbox"))
				}
				for id, n := range settled {
					if n != 1 {
						t.Errorf("row %d was settled %d times", id, n)
					}
				}
			})
		}
	}
}

// An ID may have been assigned to a row that is inserted after the head has passed. An uncommitted
// deletion may be rolled back. Rescans find both rows without a scan from the table's start.
func TestRescans(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := slowStore(t, env)
	storetest.Enqueue(t, env.DB, storetest.Products(10)...)
	deleting, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deleting.Exec("DELETE FROM cache_outbox WHERE id = 4"); err != nil {
		t.Fatal(err)
	}
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (20, 'product', '20')"); err != nil {
		t.Fatal(err)
	}
	take(t, s, 10) // all except the fourth of the ten, and the twentieth
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (15, 'product', '15')"); err != nil {
		t.Fatal(err)
	}
	take(t, s, 1)
	if err := deleting.Rollback(); err != nil {
		t.Fatal(err)
	}
	take(t, s, 1)
	if n := storetest.Count(t, env.DB, "cache_outbox"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
