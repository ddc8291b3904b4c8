package chaos

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// diskSize is several times what MySQL keeps of its binary log.
const diskSize = 128 << 20

// binaryLog returns the arguments for a short binary log below a directory.
func binaryLog(dir string) []string {
	return slices.Concat(servers.BinaryLog, []string{"--log-bin=" + filepath.Join(dir, "log"), "--max-binlog-size=16M", "--binlog-expire-logs-seconds=1"})
}

// holdCommits makes every COMMIT hang, of the shop too. Its transactions keep their locks.
func holdCommits(ctx context.Context, s *stage, hold time.Duration) error {
	if err := servers.HoldCommits(ctx, s.db); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	return servers.ReleaseCommits(ctx, s.db)
}

// fillDisk leaves no space for the binary log, and kills MySQL before it frees some: a server that
// waits for space looks once per minute.
func fillDisk(ctx context.Context, s *stage, hold time.Duration) error {
	if err := s.disk.Fill(); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	if err := errors.Join(s.mysql.Kill(), s.disk.Free()); err != nil {
		return err
	}
	return s.mysql.Restart(ctx)
}
