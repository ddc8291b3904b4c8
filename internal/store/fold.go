package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Contract: the first reads no row or one, by the primary key, without a lock, behind whole hours
// of one row each. The second takes exclusive locks on the rows of one hour, which keeps other
// workers from folding them; it returns 0 if another worker has folded them meanwhile. The others
// change rows of that hour only. Repeating all of them is harmless.
const (
	unfoldedSQL = `SELECT minute DIV 60 * 60 FROM cache_outbox_minutes
WHERE worker <> '' AND minute < (UNIX_TIMESTAMP() DIV 60 - ?) DIV 60 * 60 ORDER BY minute LIMIT 1`
	lockHourSQL   = "SELECT COUNT(*) FROM cache_outbox_minutes WHERE minute >= ? AND minute < ? AND worker <> '' FOR UPDATE"
	removeHourSQL = "DELETE FROM cache_outbox_minutes WHERE minute >= ? AND minute < ? AND worker <> ''"
)

// foldSQL adds up the rows of an hour, and the row that it is folded into already, if a worker
// wrote others later. Contract: as above.
var foldSQL = "REPLACE INTO cache_outbox_minutes (minute, worker, " + columns + ") SELECT ?, '', " + sums +
	" FROM cache_outbox_minutes WHERE minute >= ? AND minute < ?"

// Contract: exclusive locks on the rows that it deletes, by a range of the primary key. Repeating
// it is harmless.
const expireMinutesSQL = "DELETE FROM cache_outbox_minutes WHERE minute < UNIX_TIMESTAMP() DIV 60 - ?"

// Fold folds the rows of each hour that is older than 25 hours into one, and deletes what is older
// than 30 days. So the table has at most some 1,560 rows per worker and 720 more. It is safe to run
// in several workers.
func (t *Minutes) Fold(ctx context.Context) error {
	for {
		var start Minute
		err := t.db.Side.GetContext(ctx, &start, unfoldedSQL, keep)
		if err == nil {
			err = t.foldHour(ctx, start)
		}
		if errors.Is(err, sql.ErrNoRows) {
			if err = t.db.Exec(ctx, expireMinutesSQL, month); err == nil {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("fold minutes into hours: %w", err)
		}
	}
}

func (t *Minutes) foldHour(ctx context.Context, start Minute) error {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	tx, err := t.db.Side.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	var found int
	if err := tx.GetContext(ctx, &found, lockHourSQL, start, start+hour); err != nil || found == 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, foldSQL, start, start, start+hour); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, removeHourSQL, start, start+hour); err != nil {
		return err
	}
	return tx.Commit()
}
