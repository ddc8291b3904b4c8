package examples

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/unstale/unstale/lock"
)

// AddJob adds a job to the cron of one replica, before it starts. All replicas add it, and it runs
// in one of them at each time of its schedule.
func AddJob(c *cron.Cron, locks *lock.Locker, db *sql.DB, spec, name string, run func(context.Context, *sql.Tx) error, failed func(error)) error {
	var id cron.EntryID
	id, err := c.AddFunc(spec, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := runOnce(ctx, locks, db, name, c.Entry(id).Prev, run); err != nil {
			failed(err)
		}
	})
	return err
}

// runOnce runs a job, unless a replica has run it at that time of its schedule.
func runOnce(ctx context.Context, locks *lock.Locker, db *sql.DB, name string, due time.Time, run func(context.Context, *sql.Tx) error) error {
	err := locks.Do(ctx, "job:"+name, func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, db, func(tx *sql.Tx) error {
			var last int64
			if err := tx.QueryRowContext(ctx, "SELECT last FROM jobs WHERE name = ?", name).Scan(&last); err != nil {
				return err
			}
			if last >= due.Unix() {
				return nil
			}
			if err := run(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE jobs SET last = ? WHERE name = ?", due.Unix(), name)
			return err
		})
	})
	if errors.Is(err, lock.ErrLostAfterCommit) {
		return nil // the job has run
	}
	return err
}
