package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/unstale/unstale/internal/schema"
)

// inTurn runs fn while no other process migrates. fn may take steps.
//
// The lock is not given to goose as a locker: goose looks for pending migrations, and creates its
// version table, before it locks. Replicas that start together would then stop with "missing zero
// version migration".
func (s *stepper) inTurn(ctx context.Context, db *sql.DB, fn func() error) error {
	return schema.InTurn(ctx, db, "migrate", s.say, func(turn *schema.Turn) error {
		s.turn = turn
		if err := repairVersionTable(ctx, db); err != nil {
			return err
		}
		return fn()
	})
}

// Contract: one row at most, into goose's own table; repeating it does nothing.
const repairSQL = "INSERT INTO " + VersionTable + " (version_id, is_applied) SELECT 0, 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM " + VersionTable + ")"

// repairVersionTable finishes the work of a process that died after it made goose's version table
// and before it wrote the first row, without which goose refuses every verb.
func repairVersionTable(ctx context.Context, db *sql.DB) error {
	var n int
	if err := db.QueryRowContext(ctx, tableSQL, VersionTable).Scan(&n); err != nil || n == 0 {
		return err
	}
	if _, err := db.ExecContext(ctx, repairSQL); err != nil {
		return fmt.Errorf("repair the version table: %w", err)
	}
	return nil
}
