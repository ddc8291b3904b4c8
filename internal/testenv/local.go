package testenv

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// OwnMySQL starts a database server for one test that stops, kills or reconfigures it. It is always
// a local process, of the kind that UNSTALE_TEST_DB selects. args are further options of the
// server.
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

// OwnFlavor returns the kind of the servers that OwnMySQL starts.
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

// OwnDatabase returns an empty database on a server that no other test uses. The counters and
// global locks of the server belong to this test. See [OwnMySQL].
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

// OwnRedis starts a Redis server for one test that stops, kills or reconfigures it. It is always a
// local process. args are further options of the server.
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
	run.use(r.Program().Name, servers.ShortVersion(r.Version()), fromLocal)
	return r
}

// quickly lets a server flush nothing to the disk. The system keeps the writes of a killed process;
// only a machine that loses power would lose them. Tests wait for flushes more than for anything
// else.
var quickly = []string{"--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=0"}

func (s settings) localMySQL(ctx context.Context, args ...string) (*servers.MySQL, error) {
	return servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: s.flavor, Args: append(slices.Clone(quickly), args...)})
}

func (s settings) localRedis(ctx context.Context, args ...string) (*servers.Redis, error) {
	program, err := s.redisProgram()
	if err != nil {
		return nil, err
	}
	return servers.StartRedis(ctx, servers.RedisOptions{Program: program, Args: args})
}

// redisProgram prefers the Redis that was unpacked with MariaDB if the tests use MariaDB. The two
// runs of the tests then cover two versions of Redis.
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
