package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/invalidation"
)

const (
	cascadeLeaves   = 4000 // rows that sessions insert in one race and that cascades delete
	cascadeRoots    = 8
	cascadeWriters  = 4
	cascadeDeleters = 2
)

// A cascadeTree is a schema with rows on three levels. A delete on the first level deletes the rows
// below it.
type cascadeTree struct {
	name     string
	tables   []string
	captured string // the table with the leaves
	branches int64  // middle rows for each root
	root     string // statements
	middle   string
	leaf     string
	moves    [2]string // of a middle row, and of a leaf
	remove   string
}

var cascadeTrees = []cascadeTree{
	{
		name: "three_tables",
		tables: []string{
			"CREATE TABLE products (id BIGINT PRIMARY KEY)",
			"CREATE TABLE variants (id BIGINT PRIMARY KEY, product_id BIGINT, FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE)",
			"CREATE TABLE images (id BIGINT AUTO_INCREMENT PRIMARY KEY, variant_id BIGINT, FOREIGN KEY (variant_id) REFERENCES variants (id) ON DELETE CASCADE)",
		},
		captured: "images",
		branches: 4,
		root:     "INSERT IGNORE INTO products (id) VALUES (?)",
		middle:   "INSERT IGNORE INTO variants (id, product_id) VALUES (?, ?)",
		leaf:     "INSERT INTO images (variant_id) VALUES (?)",
		moves:    [2]string{"UPDATE variants SET product_id = ? WHERE id = ?", "UPDATE images SET variant_id = ? WHERE id = ?"},
		remove:   "DELETE FROM products WHERE id = ?",
	},
	{ // Each tree has one branch: MySQL 9.7 refuses to delete a tree with leaves on two (6575).
		name: "one_table",
		tables: []string{
			"CREATE TABLE categories (id BIGINT AUTO_INCREMENT PRIMARY KEY, parent_id BIGINT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)",
			"ALTER TABLE categories AUTO_INCREMENT = 1000",
		},
		captured: "categories",
		branches: 1,
		root:     "INSERT IGNORE INTO categories (id) VALUES (?)",
		middle:   "INSERT IGNORE INTO categories (id, parent_id) VALUES (?, ?)",
		leaf:     "INSERT INTO categories (parent_id) VALUES (?)",
		moves:    [2]string{"", "UPDATE categories SET parent_id = ? WHERE id = ?"},
		remove:   "DELETE FROM categories WHERE id = ?",
	},
}

// cascadeLevels are isolation levels, by their names in the report.
var cascadeLevels = [][2]string{{"rc", "READ COMMITTED"}, {"rr", "REPEATABLE READ"}}

// A cascadeResult has the counts of all races of one kind.
type cascadeResult struct {
	Leaves    int         `json:"leaves"` // rows that sessions inserted and that cascades deleted
	Lost      int         `json:"lost"`   // leaves without a row in the outbox
	Deletes   int         `json:"deletes"`
	Deadlocks int         `json:"deadlocks"` // deletes that the server refused
	Latency   percentiles `json:"latency_us"`

	took []float64
}

func (r *cascadeResult) String() string {
	return fmt.Sprintf("%d of %d lost; %.1f%% of %d deletes deadlocked; us %s", r.Lost, r.Leaves, 100*float64(r.Deadlocks)/float64(max(r.Deletes, 1)), r.Deletes, r.Latency)
}

// cascades deletes roots of trees while other sessions insert and move rows below them, with
// triggers and without, at both isolation levels. It fails if a deleted leaf has no row in the
// outbox. The exception is a tree in one table at READ COMMITTED.
func cascades(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	results := map[string]*cascadeResult{}
	for run := range cfg.Runs {
		for _, tree := range cascadeTrees {
			fmt.Fprintf(cfg.Progress, "run %d of %d: %s\n", run+1, cfg.Runs, tree.name)
			if err := s.cascade(ctx, tree, int64(max(cascadeLeaves/cfg.Scale, 100)), results); err != nil {
				return nil, fmt.Errorf("%s: %w", tree.name, err)
			}
		}
	}
	r = &Report{Unit: "us", Machine: s.machine(), Details: map[string]any{}}
	for name, result := range results {
		result.Latency = percentilesOf(result.took)
		r.Details[name] = result
		if result.Lost > 0 && name != "one_table_rc_captured" {
			err = errors.Join(err, fmt.Errorf("%s: %s", name, result))
		}
	}
	r.Ours, r.Floor = results["three_tables_rc_captured"].Latency.P50, results["three_tables_rc_plain"].Latency.P50
	return r, err
}

// cascade makes the races of one tree, and adds to their results.
func (s *shop) cascade(ctx context.Context, tree cascadeTree, leaves int64, results map[string]*cascadeResult) (err error) {
	for _, statement := range tree.tables {
		if _, err := s.db.ExecContext(ctx, strings.Replace(statement, "CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)); err != nil {
			return err
		}
	}
	c := &capture.Capturer{DB: s.db, Notify: func(string) {}, Captures: []invalidation.Capture{{Table: tree.captured, Entity: "image", ID: "id", Delete: true}}}
	for _, level := range cascadeLevels {
		for _, kind := range []string{"plain", "captured"} {
			if kind == "captured" {
				err = c.Apply(ctx, func(capture.Change) {})
			} else {
				err = c.Drop(ctx, func(capture.Existing) bool { return true }, func(capture.Existing) {})
			}
			if err != nil {
				return err
			}
			name := tree.name + "_" + level[0] + "_" + kind
			if results[name] == nil {
				results[name] = &cascadeResult{}
			}
			race := &cascadeRace{db: s.db, tree: tree, level: level[1], goal: leaves, result: results[name]}
			if err := race.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", level[1], err)
			}
			if kind == "captured" {
				if err := race.count(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// A cascadeRace is a race under way.
type cascadeRace struct {
	db     *sql.DB
	tree   cascadeTree
	level  string
	goal   int64
	leaves atomic.Int64
	mu     sync.Mutex
	ids    []string // of the leaves
	result *cascadeResult
}

// run races until enough leaves are inserted, and then deletes all trees.
func (c *cascadeRace) run(ctx context.Context) error {
	group, racing := errgroup.WithContext(ctx)
	for range cascadeWriters {
		group.Go(func() error { return c.session(racing, c.write) })
	}
	for i := range cascadeDeleters {
		next := int64(i)
		group.Go(func() error {
			return c.session(racing, func(ctx context.Context, conn *sql.Conn) error {
				next++
				return c.remove(ctx, conn, next%cascadeRoots+1)
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for root := range cascadeRoots {
		if _, err := c.db.ExecContext(ctx, c.tree.remove, root+1); err != nil {
			return err
		}
	}
	c.result.Leaves += len(c.ids)
	return nil
}

const (
	noParent = 1452 // ER_NO_REFERENCED_ROW_2: it is deleted
	noNumber = 1467 // ER_AUTOINC_READ_FAILED: in MariaDB also a deadlock about AUTO_INCREMENT
)

// session repeats a transaction at the isolation level of the race. It ignores the errors that a
// race causes.
func (c *cascadeRace) session(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL "+c.level); err != nil {
		return err
	}
	for c.leaves.Load() < c.goal {
		if err := do(ctx, conn); err != nil && !slices.Contains([]uint16{mysqlerr.Deadlock, noParent, noNumber}, mysqlerr.Number(err)) {
			return err
		}
	}
	return nil
}

// write inserts a row on the second or third level, or moves one.
func (c *cascadeRace) write(ctx context.Context, conn *sql.Conn) error {
	const first = 100 // middle row
	anyMiddle := func() int64 { return first + rand.Int64N(cascadeRoots*c.tree.branches) }
	middle := anyMiddle()
	switch n := rand.IntN(10); {
	case n < 2:
		_, err := conn.ExecContext(ctx, c.tree.middle, middle, (middle-first)/c.tree.branches+1)
		return err
	case n == 2 && c.tree.moves[0] != "":
		_, err := conn.ExecContext(ctx, c.tree.moves[0], rand.Int64N(cascadeRoots)+1, middle)
		return err
	}
	made, err := conn.ExecContext(ctx, c.tree.leaf, middle)
	if err != nil {
		return err
	}
	id, err := made.LastInsertId()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.ids = append(c.ids, fmt.Sprint(id))
	c.mu.Unlock()
	c.leaves.Add(1)
	if rand.IntN(5) == 0 {
		_, err = conn.ExecContext(ctx, c.tree.moves[1], anyMiddle(), id)
	}
	return err
}

// remove deletes a tree, and puts another root in its place.
func (c *cascadeRace) remove(ctx context.Context, conn *sql.Conn, root int64) error {
	began := time.Now()
	_, err := conn.ExecContext(ctx, c.tree.remove, root)
	took := float64(time.Since(began).Microseconds())
	c.mu.Lock()
	c.result.Deletes++
	if err != nil {
		c.result.Deadlocks++
	} else {
		c.result.took = append(c.result.took, took)
	}
	c.mu.Unlock()
	if err == nil {
		_, err = conn.ExecContext(ctx, c.tree.root, root)
	}
	return err
}

// count counts the leaves that have no row in the outbox, and empties it.
func (c *cascadeRace) count(ctx context.Context) error {
	rows, err := c.db.QueryContext(ctx, "SELECT entity_id FROM cache_outbox")
	if err != nil {
		return err
	}
	defer rows.Close()
	have := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		have[id] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range c.ids {
		if !have[id] {
			c.result.Lost++
		}
	}
	_, err = c.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox")
	return err
}
