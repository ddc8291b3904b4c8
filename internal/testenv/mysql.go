package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
)

// startLimit bounds the start of a shared server, images to pull included.
const startLimit = 5 * time.Minute

// databasePrefix marks the databases that tests make. If a killed run leaves
// one on a server, it can be dropped.
const databasePrefix = "unstale_test_"

// A Database is an empty database for one test.
type Database struct {
	Name    string
	DSN     string       // for go-sql-driver, with parseTime and UTC
	DB      *sql.DB      // closed at the end of the test
	Flavor  servers.Kind // servers.KindMySQL or servers.KindMariaDB
	Version string       // what SELECT VERSION() says
}

// MySQL returns an empty database of the test's own on the server that all tests of the binary
// share. It is dropped at the end of the test, so a transaction that is still open then is a
// failure.
func MySQL(t testing.TB) *Database {
	t.Helper()
	server, err := sharedMySQL()
	if err != nil {
		t.Fatal(err)
	}
	d, err := server.create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.drop(d); err != nil {
			t.Error(err)
		}
	})
	return d
}

// mysqlServer is the server that the tests of a binary share.
type mysqlServer struct {
	config  *mysql.Config // names no database
	admin   *sql.DB
	flavor  servers.Kind
	version string
}

var sharedMySQL = sync.OnceValues(func() (*mysqlServer, error) {
	s, err := readSettings(os.Getenv)
	if err != nil {
		return nil, err
	}
	server, from, err := s.startMySQL()
	if err != nil {
		return nil, err
	}
	shared.add(server.admin.Close)
	run.use(server.flavor.String(), servers.ShortVersion(server.version), from)
	return server, nil
})

func (s settings) startMySQL() (*mysqlServer, source, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	sources, err := s.sources(mysqlVariable, s.mysqlDSN)
	if err != nil {
		return nil, "", err
	}
	return choose("database", sources, func(from source) (*mysqlServer, error) {
		switch from {
		case fromEnv:
			return connectMySQL(ctx, s.mysqlDSN)
		case fromDocker:
			dsn, err := docker(ctx, "mysql", s.mysqlImage)
			if err != nil {
				return nil, err
			}
			return connectMySQL(ctx, dsn)
		default:
			m, err := s.localMySQL(ctx)
			if err != nil {
				return nil, err
			}
			shared.add(m.Close)
			return connectMySQL(ctx, m.DSN(""))
		}
	}, run.say)
}

// connectMySQL makes sure that a server answers. The account that dsn names must be allowed to
// create databases.
func connectMySQL(ctx context.Context, dsn string) (*mysqlServer, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.DBName = ""
	config.ParseTime = true
	config.Loc = time.UTC
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["time_zone"] = "'+00:00'"
	connector, err := mysql.NewConnector(config.Clone())
	if err != nil {
		return nil, err
	}
	server := &mysqlServer{config: config, admin: sql.OpenDB(connector), flavor: servers.KindMySQL}
	if err := server.admin.QueryRowContext(ctx, "SELECT VERSION()").Scan(&server.version); err != nil {
		_ = server.admin.Close()
		return nil, fmt.Errorf("connect to %s: %w", config.Addr, err)
	}
	if strings.Contains(server.version, "MariaDB") {
		server.flavor = servers.KindMariaDB
	}
	return server, nil
}

func (s *mysqlServer) create(ctx context.Context) (*Database, error) {
	name := databasePrefix + token()
	if _, err := s.admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, fmt.Errorf("create test database: %w", err)
	}
	config := s.config.Clone()
	config.DBName = name
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("open test database: %w", err)
	}
	return &Database{Name: name, DSN: config.FormatDSN(), DB: sql.OpenDB(connector), Flavor: s.flavor, Version: s.version}, nil
}

func (s *mysqlServer) drop(d *Database) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := d.DB.Close(); err != nil {
		return fmt.Errorf("close test database: %w", err)
	}
	for began := time.Now(); ; time.Sleep(untilNext(began)) {
		_, err := s.admin.ExecContext(ctx, "DROP DATABASE "+d.Name)
		if err == nil {
			return nil
		}
		// On MariaDB, the directory may still have a file of a dropped table. ctx ends the attempts.
		if mysqlerr.Number(err) != mysqlerr.DirectoryLeft {
			return fmt.Errorf("drop test database (is a transaction still open?): %w", err)
		}
	}
}

// token returns a random value for names that must not collide.
func token() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
