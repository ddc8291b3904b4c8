package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// script writes a program that prints line, regardless of its arguments.
func script(t *testing.T, dir, name, line string) {
	t.Helper()
	program(t, filepath.Join(dir, name), fmt.Sprintf("echo '%s'", line))
}

// program writes a shell script. No process may be forked meanwhile: the child would keep the file
// open for writing, and running it would fail.
func program(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestMissingProgramSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script(t, dir, "mysqld", "mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))")
	tests := []struct {
		kind   Kind
		places places
		want   string
	}{
		{KindMySQL, places{folder: "/checkout/.servers"}, "find MySQL: no mysqld 8.0.20 or newer on PATH or in /checkout/.servers; " +
			"run scripts/servers in the checkout, which unpacks one there (or install the package mysql-server-core or mysql-server, or set UNSTALE_SERVERS_DIR); to test on MariaDB: UNSTALE_TEST_DB=mariadb"},
		{KindMySQL, places{path: []string{dir}, folder: "/checkout/.servers"}, "find MySQL: no mysqld 8.0.20 or newer on PATH or in /checkout/.servers; " +
			dir + "/mysqld is 5.7.44; " +
			"run scripts/servers in the checkout, which unpacks one there (or install the package mysql-server-core or mysql-server, or set UNSTALE_SERVERS_DIR); to test on MariaDB: UNSTALE_TEST_DB=mariadb"},
		{KindMariaDB, places{path: []string{dir}}, "find MariaDB: no mariadbd 10.6.0 or newer on PATH or in .servers of a checkout (there is none here); " +
			"run scripts/servers mariadb in the checkout, which unpacks one there (or install the package mariadb-server-core, or set UNSTALE_SERVERS_DIR)"},
		{KindRedis, places{}, "find Redis: no redis-server 7.0.0 or newer on PATH or in .servers of a checkout (there is none here); " +
			"run scripts/servers in the checkout, which unpacks one there (or install the package redis-server, or set UNSTALE_SERVERS_DIR)"},
		{KindZooKeeper, places{folder: "/checkout/.servers"}, "find ZooKeeper: no zookeeper.jar 3.5.3 or newer on PATH or in /checkout/.servers; " +
			"run scripts/servers zookeeper in the checkout, which unpacks one there (or install the packages libzookeeper-java and default-jre-headless, or set UNSTALE_SERVERS_DIR)"},
	}
	for _, test := range tests {
		_, err := test.places.find(test.kind)
		var missing *MissingError
		if !errors.As(err, &missing) || err.Error() != test.want {
			t.Errorf("find(%s):\n got %v\nwant %s", test.kind, err, test.want)
		}
	}
}

// A machine with MariaDB alone does not run the tests on it unless it is asked to.
func TestMariaDBIsNotUsedInsteadOfMySQL(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "mariadbd", "mariadbd  Ver 10.11.11-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)")
	t.Setenv("PATH", dir)
	t.Setenv(FolderVariable, t.TempDir())
	var missing *MissingError
	if p, err := FindDatabase(""); !errors.As(err, &missing) || missing.Kind != KindMySQL {
		t.Errorf("FindDatabase(\"\") = %v, %v, want an error that MySQL is missing", p, err)
	}
	if p, err := FindDatabase(KindMariaDB); err != nil || p.Kind != KindMariaDB {
		t.Errorf("FindDatabase(mariadb) = %v, %v", p, err)
	}
}

func TestProgramOnPathComesFirst(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), t.TempDir()
	unpacked := filepath.Join(folder, "root", "usr", "sbin")
	if err := os.MkdirAll(unpacked, 0o700); err != nil {
		t.Fatal(err)
	}
	script(t, dir, "mysqld", "mysqld  Ver 8.0.46-0ubuntu0.24.04.1 for Linux on x86_64 ((Ubuntu))")
	script(t, unpacked, "mysqld", "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))")
	found, rejected := places{path: []string{dir}, folder: folder, trees: []string{"root"}}.search(KindMySQL)
	if len(found) != 2 || len(rejected) != 0 {
		t.Fatalf("search = %v, %v, want two programs", found, rejected)
	}
	if found[0].Short() != "8.0.46" || found[0].Tree != "" {
		t.Errorf("first is %+v, want the one on PATH", found[0])
	}
	if found[1].Short() != "9.7.4" || found[1].Tree != filepath.Join(folder, "root") {
		t.Errorf("second is %+v, want the unpacked one", found[1])
	}
}

func TestMariaDBThatIsCalledMysqldIsMariaDB(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script(t, dir, "mysqld", "mysqld  Ver 10.11.11-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)")
	here := places{path: []string{dir}}
	if found, _ := here.search(KindMySQL); len(found) != 0 {
		t.Errorf("MySQL: %v, want none", found)
	}
	if found, _ := here.search(KindMariaDB); len(found) != 1 || found[0].Version != "10.11.11-MariaDB-0+deb12u1" {
		t.Errorf("MariaDB: %v, want one", found)
	}
}

// The variable chooses trees and their order, and excludes PATH. Valkey is a Redis with a name of its
// own.
func TestChosenTrees(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	for tree, line := range map[string]string{
		"new": "Valkey server v=9.1.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1", "old": "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1",
	} {
		bin := filepath.Join(folder, tree, "usr", "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		script(t, bin, map[string]string{"new": "valkey-server", "old": "redis-server"}[tree], line)
	}
	script(t, dir, "redis-server", "Redis server v=8.8.8 sha=00000000:0")
	t.Setenv("PATH", dir)
	t.Setenv(FolderVariable, folder)
	for trees, want := range map[string][]string{"new,old": {"Valkey 9.1.0", "Redis 7.0.15"}, "old,new": {"Redis 7.0.15", "Valkey 9.1.0"}, "old": {"Redis 7.0.15"}} {
		t.Setenv(TreesVariable, trees)
		var found []string
		for _, p := range FindAll(KindRedis) {
			found = append(found, p.Name+" "+p.Short())
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: %q, want %q", trees, found, want)
		}
	}
	t.Setenv(TreesVariable, "")
	if found, err := Find(KindRedis); err != nil || found.Version != "8.8.8" {
		t.Errorf("without the variable: %+v, %v", found, err)
	}
}

func TestProgramThatCannotRunIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program(t, filepath.Join(dir, "redis-server"), "echo cannot load library >&2\nexit 127")
	_, rejected := places{path: []string{dir}}.search(KindRedis)
	want := "run " + dir + "/redis-server --version: exit status 127: cannot load library"
	if len(rejected) != 1 || rejected[0] != want {
		t.Fatalf("rejected %q, want %q", rejected, want)
	}
}

func TestOlder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		want bool
	}{
		{"8.0.19", "8.0.20", true},
		{"8.0.20-debug", "8.0.20", false},
		{"8.4.0", "8.0.20", false},
		{"10.11.11-MariaDB", "10.6.0", false},
		{"9", "9.0.0", true},
	}
	for _, test := range tests {
		if got := older(test.a, test.b); got != test.want {
			t.Errorf("older(%s, %s) = %v", test.a, test.b, got)
		}
	}
}
