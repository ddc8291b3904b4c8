package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// A proof runs transactions on the nodes of a cluster. Each try inserts a row of its own, so the
// cluster shows which tries have committed.
type proof struct {
	dbs       []*sql.DB // one for each node
	next      atomic.Int64
	conflicts atomic.Int64 // tries that COMMIT has rolled back
	unknown   atomic.Int64 // calls whose COMMIT may have committed

	mu    sync.Mutex
	calls []call
}

// A call is one call of InTx: the tries that reached COMMIT, and its error.
type call struct {
	tries []int64
	err   error
}

const hotRows = 10 // that all transactions compete for

func newProof(t testing.TB, nodes []*servers.MySQL) *proof {
	t.Helper()
	p := &proof{}
	for _, node := range nodes {
		config, err := mysql.ParseDSN(node.TCPDSN(""))
		if err != nil {
			t.Fatal(err)
		}
		config.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		p.dbs = append(p.dbs, sql.OpenDB(connector))
	}
	t.Cleanup(func() {
		for _, db := range p.dbs {
			_ = db.Close()
		}
	})
	for _, stmt := range []string{
		"CREATE DATABASE shop", "CREATE TABLE shop.tries (id BIGINT PRIMARY KEY)", "CREATE TABLE shop.hot (id INT PRIMARY KEY, n BIGINT NOT NULL)",
		"INSERT INTO shop.hot WITH RECURSIVE r (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 9) SELECT i, 0 FROM r",
	} {
		if _, err := p.dbs[0].ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	for _, db := range p.dbs {
		testenv.Eventually(t, "the tables on all nodes", func() bool {
			var n int
			return db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop.hot").Scan(&n) == nil && n == hotRows
		})
	}
	return p
}

// write calls InTx on a node, and returns how many tries reached COMMIT.
func (p *proof) write(ctx context.Context, node int) int {
	c := call{}
	c.err = outbox.InTx(ctx, p.dbs[node], func(tx *sql.Tx) error {
		id := p.next.Add(1)
		if _, err := tx.Exec("INSERT INTO shop.tries VALUES (?)", id); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE shop.hot SET n = n + 1 WHERE id = ?", rand.IntN(hotRows)); err != nil {
			return err
		}
		c.tries = append(c.tries, id)
		return nil
	})
	rolledBack := len(c.tries)
	switch isUnknown := errors.Is(c.err, outbox.ErrCommit); {
	case isUnknown:
		p.unknown.Add(1)
		rolledBack--
	case c.err == nil:
		rolledBack--
	}
	p.conflicts.Add(int64(rolledBack))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	return len(c.tries)
}

// writers writes on all nodes, with several sessions each, until the function that it returns is
// called.
func (p *proof) writers(each int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range each * len(p.dbs) {
		all.Go(func() {
			for ctx.Err() == nil {
				if p.write(context.WithoutCancel(ctx), i%len(p.dbs)) == 0 {
					_ = sleep.For(ctx, 10*time.Millisecond) // the node is away
				}
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); all.Wait() })
}

// check compares the results of all calls with the rows that each node has, when it has applied all
// transactions.
func (p *proof) check(t testing.TB) {
	t.Helper()
	for i, db := range p.dbs {
		testenv.Eventually(t, "a node that accepts writes", func() bool {
			_, err := db.ExecContext(t.Context(), "INSERT IGNORE INTO shop.tries VALUES (?)", -1-i)
			return err == nil
		})
	}
	for _, db := range p.dbs {
		testenv.Eventually(t, "the last transactions on each node", func() bool {
			var n int
			return db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop.tries WHERE id < 0").Scan(&n) == nil && n == len(p.dbs)
		})
		p.compare(t, db)
	}
}

func (p *proof) compare(t testing.TB, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM shop.tries")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	there := map[int64]bool{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		there[id] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		repeated, last := c.tries, int64(0)
		if c.err == nil || errors.Is(c.err, outbox.ErrCommit) {
			repeated, last = c.tries[:len(c.tries)-1], c.tries[len(c.tries)-1]
		}
		if slices.ContainsFunc(repeated, func(id int64) bool { return there[id] }) {
			t.Errorf("a try that was repeated has committed: %d of %v, then %v", last, c.tries, c.err)
		}
		if c.err == nil && !there[last] {
			t.Errorf("try %d is reported as committed, and is not there", last)
		}
	}
}

// If a cluster rolls a transaction back at COMMIT because another node changed a row first, InTx
// repeats it. No try that it repeats has committed.
func TestInTxRepeatsWhatAClusterRollsBack(t *testing.T) {
	t.Parallel()
	p := newProof(t, testenv.OwnPrimaries(t))
	stop := p.writers(4)
	defer stop()
	testenv.Eventually(t, "conflicts at COMMIT", func() bool { return p.conflicts.Load()+p.unknown.Load() >= 100 })
	stop()
	p.check(t)
	if unknown := p.unknown.Load(); unknown > 0 {
		t.Errorf("%d of %d calls may have committed", unknown, len(p.calls))
	}
	for _, c := range p.calls {
		if c.err != nil && !mysqlerr.IsContention(c.err) {
			t.Error(c.err)
		}
	}
}
