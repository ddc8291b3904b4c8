package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// diskSize is several times what MySQL keeps of its binary log.
const diskSize = 128 << 20

// A disk is a small file system in memory, for the binary log of MySQL. Making one takes the
// privilege to mount.
type disk struct{ dir string }

func newDisk() (*disk, error) {
	dir, err := os.MkdirTemp("", "unstale-disk-")
	if err != nil {
		return nil, err
	}
	if err := mountMemory(dir, diskSize); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a small disk: %w", err), os.Remove(dir))
	}
	return &disk{dir}, nil
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves no space.
func (d *disk) fill() error {
	file, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

func (d *disk) free() error { return os.Remove(d.filler()) }

func (d *disk) close() error {
	return errors.Join(unmount(d.dir), os.Remove(d.dir))
}

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
	if err := s.disk.fill(); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	if err := errors.Join(s.mysql.Kill(), s.disk.free()); err != nil {
		return err
	}
	return s.mysql.Restart(ctx)
}
