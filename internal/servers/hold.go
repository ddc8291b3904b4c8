package servers

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// BinaryLog is the arguments that make a server write a binary log, as [HoldCommits] requires.
var BinaryLog = []string{"--log-bin=log", "--server-id=1"}

// The statements make the server wait for a replica that does not exist. Meanwhile a COMMIT neither
// returns nor frees its locks, as with a full disk.
var holdSQL = map[Kind]struct{ hold, release []string }{
	KindMySQL: {
		hold: []string{
			"INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
			"SET GLOBAL rpl_semi_sync_source_timeout = 86400000",
			"SET GLOBAL rpl_semi_sync_source_enabled = 1",
		},
		release: []string{"SET GLOBAL rpl_semi_sync_source_enabled = 0", "UNINSTALL PLUGIN rpl_semi_sync_source"},
	},
	KindMariaDB: {
		hold: []string{
			"SET GLOBAL rpl_semi_sync_master_timeout = 86400000",
			"SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
			"SET GLOBAL rpl_semi_sync_master_enabled = 1",
		},
		release: []string{"SET GLOBAL rpl_semi_sync_master_enabled = 0"},
	},
}

// HoldCommits makes every COMMIT of a server hang until ReleaseCommits. The server must write a
// binary log, and the account must administer it. Reads and locks work meanwhile.
func HoldCommits(ctx context.Context, db *sql.DB) error {
	return administer(ctx, db, func(kind Kind) []string { return holdSQL[kind].hold })
}

// ReleaseCommits lets the COMMITs return that HoldCommits made hang.
func ReleaseCommits(ctx context.Context, db *sql.DB) error {
	return administer(ctx, db, func(kind Kind) []string { return holdSQL[kind].release })
}

func administer(ctx context.Context, db *sql.DB, statements func(Kind) []string) error {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	kind := KindMySQL
	if strings.Contains(version, "MariaDB") {
		kind = KindMariaDB
	}
	for _, s := range statements(kind) {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}
