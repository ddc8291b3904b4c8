package testenv

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/clock"
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

// OwnClock is like [OwnMySQL], but the clock of the server is ahead by what the file says.
func OwnClock(t testing.TB) (*servers.MySQL, *clock.File) {
	t.Helper()
	dir := t.TempDir()
	file, err := clock.NewFile(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	library, err := clock.Library(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Flavor: OwnFlavor(t), Env: []string{library, file.Env()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, file
}

// OwnGroup starts a group of MySQL servers with Group Replication for one test. They are local
// processes, for each value of UNSTALE_TEST_DB. See [servers.StartGroup].
func OwnGroup(t testing.TB, o servers.GroupOptions) *servers.Group {
	t.Helper()
	o.Args = append(slices.Clone(quickly), o.Args...)
	g, err := servers.StartGroup(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	run.use("MySQL Group Replication", servers.ShortVersion(g.Nodes[0].Version()), fromLocal)
	return g
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

// OwnBannered is like [OwnDatabase], on a server with another banner: version is its VERSION(). On
// MySQL, which has no option for that, its rewriter plugin answers query with version and comment.
func OwnBannered(t testing.TB, query, version, comment string) *Database {
	t.Helper()
	if OwnFlavor(t) == servers.KindMariaDB {
		return OwnDatabase(t, "--version="+version)
	}
	d := OwnDatabase(t)
	for _, statement := range []string{
		"CREATE DATABASE query_rewrite",
		`CREATE TABLE query_rewrite.rewrite_rules (
			id INT AUTO_INCREMENT PRIMARY KEY,
			pattern VARCHAR(5000) COLLATE utf8mb4_bin NOT NULL,
			pattern_database VARCHAR(20) COLLATE utf8mb4_bin,
			replacement VARCHAR(5000) COLLATE utf8mb4_bin NOT NULL,
			enabled ENUM('YES', 'NO') COLLATE utf8mb4_bin NOT NULL DEFAULT 'YES',
			message VARCHAR(1000) COLLATE utf8mb4_bin,
			pattern_digest VARCHAR(64),
			normalized_pattern VARCHAR(100)
		) DEFAULT CHARSET = utf8mb4`,
		"INSERT INTO query_rewrite.rewrite_rules (pattern, replacement) VALUES ('" + query + "', 'SELECT \"" + version + "\" AS version, \"" + comment + "\" AS comment')",
		"INSTALL PLUGIN rewriter SONAME 'rewriter.so'",
	} {
		if _, err := d.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return d
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
