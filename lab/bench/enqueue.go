package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const enqueueTransactions = 1000 // of each kind in a run

// enqueue measures what an application's transaction costs: one UPDATE alone, with a bare INSERT of
// a row, with Enqueue, and with an INSERT into a table whose trigger refuses chosen IDs.
func enqueue(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := (writer{s}).products(ctx); err != nil {
		return nil, err
	}
	for _, statement := range []string{"CREATE TABLE guarded LIKE cache_outbox", schema.RefuseIDs("guarded")} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	update := func(tx *sql.Tx, i int) error {
		_, err := tx.ExecContext(ctx, "UPDATE products SET price_cents = ? WHERE id = ?", i, i%1000+1)
		return err
	}
	insert := func(table string) func(*sql.Tx, int) error {
		return func(tx *sql.Tx, i int) error {
			if err := update(tx, i); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" (entity, entity_id, params) VALUES (?, ?, ?)", "product", fmt.Sprint(i), `{"category_id":[7,9]}`)
			return err
		}
	}
	kinds := []func(*sql.Tx, int) error{
		update,
		insert("cache_outbox"),
		func(tx *sql.Tx, i int) error {
			if err := update(tx, i); err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: fmt.Sprint(i), Params: map[string]any{"category_id": []int{7, 9}}})
		},
		insert("guarded"),
	}
	n := max(enqueueTransactions/cfg.Scale, 10)
	took, err := (writer{s}).transactions(ctx, cfg, n, kinds, func() error { return nil })
	if err != nil {
		return nil, err
	}
	r = &Report{Ours: took[2], Floor: took[1], Unit: "us", Machine: s.machine(), Details: map[string]any{
		"transactions": n, "us_update_alone": took[0], "us_trigger_refuses_ids": took[3],
	}}
	return r, nil
}

// A writer measures transactions of an application.
type writer struct{ shop *shop }

// transactions makes n of each kind a run, in turns, transaction by transaction: a disk is slow at
// times. It returns what one of each takes, in microseconds, the median of the runs. after is
// called after each run.
func (w writer) transactions(ctx context.Context, cfg Config, n int, kinds []func(*sql.Tx, int) error, after func() error) ([]float64, error) {
	took := make([][]float64, len(kinds))
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		sum := make([]float64, len(kinds))
		for i := range n {
			for kind, do := range kinds {
				seconds, err := timed(func() error {
					return outbox.InTx(ctx, w.shop.db, func(tx *sql.Tx) error { return do(tx, i) })
				})
				if err != nil {
					return nil, err
				}
				sum[kind] += seconds
			}
		}
		for kind := range kinds {
			took[kind] = append(took[kind], 1e6*sum[kind]/float64(n))
		}
		if err := after(); err != nil {
			return nil, err
		}
	}
	medians := make([]float64, len(kinds))
	for kind := range kinds {
		medians[kind] = median(took[kind])
	}
	return medians, nil
}

// application returns a pool of an application's connections, to a database with products.
func (w writer) application(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open("mysql", w.shop.dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(latencyHands)
	db.SetMaxIdleConns(latencyHands)
	if err := w.products(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// hint publishes a wake-up as an application does after its commit, if wanted is set.
func (w writer) hint(ctx context.Context, wanted bool) error {
	if !wanted {
		return nil
	}
	return w.shop.Publish(ctx, worker.Config{}.WithDefaults().WakeChannel, "").Err()
}

// products creates a table that an application could own.
func (w writer) products(ctx context.Context) error {
	for _, stmt := range []string{
		"CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)",
		"INSERT INTO products SELECT n, 100 FROM (WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) SELECT n FROM numbers) AS list",
	} {
		if _, err := w.shop.db.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	return nil
}
