package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFolderOfAKilledProcessIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := time.Now().Add(-2 * abandonedAfter)
	make := func(name string) string {
		path := filepath.Join(dir, folderPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, lockName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	age := func(path string) {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	abandoned, inUse, young := make("abandoned"), make("in-use"), make("young")
	lock, err := lockFile(filepath.Join(inUse, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	age(abandoned)
	age(inUse)

	removeAbandoned(dir)
	if exists(abandoned) {
		t.Error("the abandoned directory still exists")
	}
	if !exists(inUse) || !exists(young) {
		t.Error("a directory that is in use or new was removed")
	}
}

func TestFolderTooLongForASocketIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 80))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := newFolder(dir)
	if err == nil || !strings.Contains(err.Error(), "too long for a Unix socket") {
		t.Fatalf("newFolder = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}
