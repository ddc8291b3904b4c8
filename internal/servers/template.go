package servers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// templateFolder returns an initialized data directory of a database program, and creates it if it
// does not exist. Copying a directory is much faster than creating one. It is created under a
// temporary name and then renamed, by one process at a time, so no process ever sees an incomplete
// directory.
func templateFolder(ctx context.Context, p *Program) (string, error) {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, templateName(p))
	if exists(path) {
		return path, nil
	}
	lock, err := waitForLock(ctx, path+".lock")
	if err != nil {
		return "", fmt.Errorf("prepare a %s data directory: wait for another process that does: %w", p.Kind, err)
	}
	defer lock.Close()
	if exists(path) {
		return path, nil
	}
	if err := makeTemplate(ctx, p, path); err != nil {
		return "", fmt.Errorf("prepare a %s data directory: %w", p.Kind, err)
	}
	return path, nil
}

// templateName returns a name that depends on everything that the result of makeTemplate depends
// on.
func templateName(p *Program) string {
	sum := sha256.Sum256([]byte(p.Version + "\x00" + p.base() + "\x00" + accounts[p.Kind] + "\x00" + redoSize))
	return fmt.Sprintf("template-%s-%s-%x", string(p.Kind), p.Short(), sum[:4])
}

// cacheFolder returns the directory of templates: .servers if it exists and is writable, otherwise
// the user's cache.
func cacheFolder() (string, error) {
	if folder, ok := Folder(); ok {
		if unix.Access(folder, unix.W_OK) == nil {
			return folder, nil
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("unstale-cache-%d", os.Getuid()))
	} else {
		cache = filepath.Join(cache, "unstale")
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", fmt.Errorf("create cache directory: %w", err)
	}
	return cache, nil
}

// waitForLock locks the file path as soon as no other process holds it.
func waitForLock(ctx context.Context, path string) (*os.File, error) {
	for {
		lock, err := lockFile(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return lock, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// makeTemplate initializes a data directory and moves it to path. The caller holds the lock, so
// leftovers of a killed process can be deleted.
func makeTemplate(ctx context.Context, p *Program, path string) error {
	leftovers, _ := filepath.Glob(path + ".tmp-*")
	for _, leftover := range leftovers {
		_ = os.RemoveAll(leftover)
	}
	work, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	data := filepath.Join(work, "data")
	if p.Kind == KindMariaDB {
		err = bootstrapMariaDB(ctx, p, work, data)
	} else {
		err = initialiseMySQL(ctx, p, work, data)
	}
	if err != nil {
		return err
	}
	// The next server generates its own ID.
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(data, path)
}

// runToEnd runs a program that ends on its own.
func runToEnd(ctx context.Context, p *Program, log string, input io.Reader, args ...string) error {
	cmd := p.command(args...)
	cmd.Stdin = input
	c, err := spawn(cmd, log)
	if err != nil {
		return err
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.kill()
		return context.Cause(ctx)
	}
	if c.err != nil {
		return fmt.Errorf("%s ended (%w); its log ends with:\n%s", p.Path, c.err, tail(log))
	}
	return nil
}

func copyFolder(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy data directory: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
