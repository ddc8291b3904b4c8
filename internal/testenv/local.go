package testenv

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// OwnMySQL starts a database server for one test that stops, kills or reconfigures it. It is always a local process, of
// the flavour that UNSTALE_TEST_DB says. args are further options of the server.
func OwnMySQL(t testing.TB, args ...string) *servers.MySQL {
	t.Helper()
	s, err := readSettings(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.localMySQL(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	run.use(m.Flavor().String(), servers.ShortVersion(m.Version()), fromLocal)
	return m
}

// OwnFlavor is that of the servers that OwnMySQL starts.
func OwnFlavor(t testing.TB) servers.Kind {
	t.Helper()
	s, err := readSettings(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	program, err := servers.FindDatabase(s.flavor)
	if err != nil {
		t.Fatal(err)
	}
	return program.Kind
}

// OwnDatabase is an empty database on a server that no other test uses, so that its counters and global locks are this
// test's. See [OwnMySQL].
func OwnDatabase(t testing.TB, args ...string) *Database {
	t.Helper()
	own := OwnMySQL(t, args...)
	admin, err := sql.Open("mysql", own.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	const name = "shop"
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", own.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &Database{Name: name, DSN: own.DSN(name), DB: db, Flavor: own.Flavor(), Version: own.Version()}
}

// OwnRedis starts a Redis server for one test that stops, kills or reconfigures it. It is always a local process. args
// are further options of the server.
func OwnRedis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	s, err := readSettings(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.localRedis(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	run.use(servers.KindRedis.String(), servers.ShortVersion(r.Version()), fromLocal)
	return r
}

func (s settings) localMySQL(ctx context.Context, args ...string) (*servers.MySQL, error) {
	return servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: s.flavor, Args: args})
}

func (s settings) localRedis(ctx context.Context, args ...string) (*servers.Redis, error) {
	program, err := s.redisProgram()
	if err != nil {
		return nil, err
	}
	return servers.StartRedis(ctx, servers.RedisOptions{Program: program, Args: args})
}

// redisProgram prefers the Redis that was unpacked with MariaDB when MariaDB is asked for, so that the two runs of the
// tests see two versions of Redis.
func (s settings) redisProgram() (*servers.Program, error) {
	program, err := servers.Find(servers.KindRedis)
	if err != nil || s.flavor != servers.KindMariaDB {
		return program, err
	}
	database, err := servers.Find(servers.KindMariaDB)
	if err != nil || database.Tree == "" {
		return program, nil
	}
	for _, other := range servers.FindAll(servers.KindRedis) {
		if other.Tree == database.Tree {
			return other, nil
		}
	}
	return program, nil
}
