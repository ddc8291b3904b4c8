package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

const (
	capturedTransactions = 1000    // of each kind in a run
	capturedRows         = 100_000 // of one UPDATE
)

// captured measures what triggers cost. It compares three transactions with one UPDATE: a trigger
// inserts the row of the outbox, the transaction inserts it, or there is no row. It also measures
// an UPDATE of many rows. Each kind has its own table.
func captured(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rows := max(capturedRows/cfg.Scale, 1000)
	for _, table := range []string{"plain", "captured"} {
		if err := (capturedShop{s}).priced(ctx, table, rows); err != nil {
			return nil, err
		}
	}
	c := &capture.Capturer{DB: s.db, Notify: func(string) {}, Captures: []invalidation.Capture{{
		Table: "captured", Entity: "product", ID: "id", Watch: []string{"price_cents"}, Insert: true, Update: true, Delete: true,
		Params: []invalidation.CaptureParam{{Name: "category_id", Source: "category_id"}},
	}}}
	if err := c.Apply(ctx, func(capture.Change) {}); err != nil {
		return nil, err
	}
	r = &Report{Unit: "us", Machine: s.machine(), Details: map[string]any{"rows": rows}}
	if err := (capturedShop{s}).measure(ctx, cfg, r); err != nil {
		return nil, err
	}
	return r, (capturedShop{s}).updates(ctx, cfg, rows, r.Details)
}

// A capturedShop has triggers.
type capturedShop struct{ shop *shop }

// thousand is a table of the numbers from 0 to 999.
const thousand = "(WITH RECURSIVE numbers AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 999) SELECT n FROM numbers)"

// priced creates a table of products.
func (b capturedShop) priced(ctx context.Context, table string, rows int) error {
	for _, statement := range []string{
		"CREATE TABLE " + table + " (id INT PRIMARY KEY, price_cents INT NOT NULL, category_id INT NOT NULL, stock INT NOT NULL)",
		fmt.Sprintf("INSERT INTO %s SELECT 1000 * b.n + a.n + 1, 100, a.n, 5 FROM %s AS a JOIN %[2]s AS b WHERE 1000 * b.n + a.n < %d", table, thousand, rows),
	} {
		if _, err := b.shop.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// capturedTransactions measures transactions that change one row.
func (b capturedShop) measure(ctx context.Context, cfg Config, r *Report) error {
	update := func(table string) func(*sql.Tx, int) error {
		return func(tx *sql.Tx, i int) error {
			_, err := tx.ExecContext(ctx, "UPDATE "+table+" SET price_cents = price_cents + 1 WHERE id = ?", i%1000+1)
			return err
		}
	}
	alone := update("plain")
	kinds := []func(*sql.Tx, int) error{alone, func(tx *sql.Tx, i int) error {
		if err := alone(tx, i); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id, params) VALUES (?, ?, ?)", "product", fmt.Sprint(i), `{"category_id": ["7", "7"]}`)
		return err
	}, update("captured")}
	n := max(capturedTransactions/cfg.Scale, 10)
	took, err := writer(b).transactions(ctx, cfg, n, kinds, func() error { return b.discard(ctx, 2*n) })
	if err != nil {
		return err
	}
	r.Ours, r.Floor = took[2], took[1]
	r.Details["transactions"], r.Details["us_update_alone"] = n, took[0]
	return nil
}

// capturedUpdates measures statements that change all rows of a table.
func (b capturedShop) updates(ctx context.Context, cfg Config, rows int, details map[string]any) error {
	kinds := []struct {
		name, statement string
		captured        int
	}{
		{"update_without_trigger", "UPDATE plain SET price_cents = price_cents + 1", 0},
		{"update_watched", "UPDATE captured SET price_cents = price_cents + 1", rows},
		{"update_unwatched", "UPDATE captured SET stock = stock + 1", 0},
	}
	took := map[string][]float64{}
	for run := range cfg.Runs {
		for turn := range kinds {
			kind := kinds[(turn+run)%len(kinds)]
			fmt.Fprintln(cfg.Progress, kind.name)
			seconds, err := timed(func() error {
				_, err := b.shop.db.ExecContext(ctx, kind.statement)
				return err
			})
			if err == nil {
				err = b.discard(ctx, kind.captured)
			}
			if err != nil {
				return err
			}
			took[kind.name] = append(took[kind.name], seconds)
		}
	}
	for name, seconds := range took {
		details["seconds_"+name] = median(seconds)
	}
	return nil
}

// discard empties the outbox and checks that it had that many rows.
func (b capturedShop) discard(ctx context.Context, want int) error {
	var have int
	if err := b.shop.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox").Scan(&have); err != nil {
		return err
	}
	if have != want {
		return fmt.Errorf("%d rows in the outbox, want %d", have, want)
	}
	_, err := b.shop.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox")
	return err
}
