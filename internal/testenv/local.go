package testenv

import (
	"context"
	"os"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

var osGetenv = os.Getenv

// OwnMySQL starts a database server for one test that stops, kills or
// reconfigures it. It is always a local process, of the flavour that
// UNSTALE_TEST_DB says. args are further options of the server.
func OwnMySQL(t testing.TB, args ...string) *servers.MySQL {
	t.Helper()
	s, err := readSettings(osGetenv)
	if err != nil {
		t.Fatal(err)
	}
	m, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Flavor: s.flavor, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	note(m.Flavor().String(), servers.ShortVersion(m.Version()), fromLocal)
	return m
}

// OwnRedis starts a Redis server for one test that stops, kills or
// reconfigures it. It is always a local process. args are further options of
// the server.
func OwnRedis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	s, err := readSettings(osGetenv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.startLocalRedis(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	note(servers.KindRedis.String(), r.Version(), fromLocal)
	return r
}

// startMySQL starts the server that all tests of the binary share.
func (s settings) startMySQL(ctx context.Context) (dsn string, from source, err error) {
	m, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: s.flavor})
	if err != nil {
		return "", "", err
	}
	atEnd(func() { _ = m.Close() })
	return m.DSN(""), fromLocal, nil
}
