package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/invalidation"
)

const (
	capturedTransactions = 1000    // of each kind in a run
	capturedRows         = 100_000 // of one UPDATE
)

// captured measures what triggers cost. It compares three transactions with one UPDATE: a trigger
// inserts the row of the outbox, the transaction inserts it, or there is no row. It also measures
// an UPDATE of many rows, whose floors are a trigger that only inserts two columns, and an empty
// one. Each kind has its own table.
func captured(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rows := max(capturedRows/cfg.Scale, 1000)
	for _, table := range []string{"plain", "captured", "noted", "quiet"} {
		if err := (capturedShop{s}).priced(ctx, table, rows); err != nil {
			return nil, err
		}
	}
	for table, body := range map[string]string{"noted": "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', NEW.id)", "quiet": "BEGIN END"} {
		if _, err := s.db.ExecContext(ctx, "CREATE TRIGGER of_"+table+" AFTER UPDATE ON "+table+" FOR EACH ROW "+body); err != nil {
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

// processor returns what the thread of a connection to a private server has used, in seconds, or 0.
func (b capturedShop) processor(ctx context.Context, conn *sql.Conn) (seconds float64, err error) {
	if b.shop.private == nil {
		return 0, nil
	}
	query := "SELECT thread_os_id FROM performance_schema.threads WHERE processlist_id = CONNECTION_ID()"
	if b.shop.private.Flavor() == servers.KindMariaDB {
		query = "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()"
	}
	var thread int
	if err := conn.QueryRowContext(ctx, query).Scan(&thread); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", b.shop.private.Pid(), thread))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // not Linux
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &seconds)
	}
	return seconds / 1e9, err
}

// capturedUpdates measures statements that change all rows of a table.
func (b capturedShop) updates(ctx context.Context, cfg Config, rows int, details map[string]any) error {
	conn, err := b.shop.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	kinds := []struct {
		name, statement string
		captured        int
	}{
		{"update_without_trigger", "UPDATE plain SET price_cents = price_cents + 1", 0},
		{"update_watched", "UPDATE captured SET price_cents = price_cents + 1", rows},
		{"update_watched_floor", "UPDATE noted SET price_cents = price_cents + 1", rows},
		{"update_unwatched", "UPDATE captured SET stock = stock + 1", 0},
		{"update_unwatched_floor", "UPDATE quiet SET stock = stock + 1", 0},
	}
	took := map[string][]float64{}
	for run := range cfg.Runs {
		for turn := range kinds {
			kind := kinds[(turn+run)%len(kinds)]
			fmt.Fprintln(cfg.Progress, kind.name)
			before, err := b.processor(ctx, conn)
			if err != nil {
				return err
			}
			seconds, err := timed(func() error {
				_, err := conn.ExecContext(ctx, kind.statement)
				return err
			})
			if err != nil {
				return err
			}
			after, err := b.processor(ctx, conn)
			if err == nil {
				err = b.discard(ctx, kind.captured)
			}
			if err != nil {
				return err
			}
			took["seconds_"+kind.name] = append(took["seconds_"+kind.name], seconds)
			took["processor_seconds_"+kind.name] = append(took["processor_seconds_"+kind.name], after-before)
		}
	}
	for name, seconds := range took {
		details[name] = median(seconds)
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
