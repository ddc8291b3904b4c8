package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// A place is the demo's database and Redis, on private servers or on given ones.
type place struct {
	mysql    *mysql.Config // names the demo's own database
	database string        // its name
	redisURL string
	app      string // KEY_PREFIX: the first part of the demo's keys
	channel  string // for fences; private to the demo

	privateMySQL *servers.MySQL // nil: a given server
	privateRedis *servers.Redis // nil: a given server
}

// The names on private servers, which no other application uses.
const (
	privateDatabase = "shop"
	privateApp      = "zahraah"
)

// env is APP_ENV: the second part of the demo's keys.
const env = "dev"

// newPlace chooses the names: short names on private servers, otherwise unique ones.
func newPlace(cfg Config) (*place, error) {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	token := hex.EncodeToString(b)
	p := &place{database: privateDatabase, app: privateApp, redisURL: cfg.RedisURL, channel: "unstale:demo:" + token}
	if cfg.RedisURL != "" {
		p.app += "_demo_" + token
	}
	if cfg.MySQLDSN == "" {
		return p, nil
	}
	p.database = "unstale_demo_" + token
	given, err := mysql.ParseDSN(cfg.MySQLDSN)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w; must be user:password@tcp(host:3306)/", err)
	}
	p.use(given)
	return p, nil
}

// use derives the address of the demo's database from the server's address.
func (p *place) use(server *mysql.Config) {
	p.mysql = server.Clone()
	p.mysql.DBName = p.database
	p.mysql.ParseTime, p.mysql.Loc = true, time.UTC
	p.mysql.InterpolateParams = true
	p.mysql.Logger = &mysql.NopLogger{}
}

// lookup returns the demo's values of KEY_PREFIX and APP_ENV, and asks others for all other names.
func (p *place) lookup(others func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch name {
		case "KEY_PREFIX":
			return p.app, true
		case "APP_ENV":
			return env, true
		}
		return others(name)
	}
}

func (p *place) startMySQL(ctx context.Context, program *servers.Program) error {
	m, err := servers.StartMySQL(ctx, servers.MySQLOptions{Program: program})
	if err != nil {
		return err
	}
	p.privateMySQL = m
	server, err := mysql.ParseDSN(m.DSN(""))
	if err != nil {
		return fmt.Errorf("read dsn of the private server: %w", err)
	}
	p.use(server)
	return nil
}

func (p *place) startRedis(ctx context.Context, program *servers.Program) error {
	r, err := servers.StartRedis(ctx, servers.RedisOptions{Program: program})
	if err != nil {
		return err
	}
	p.privateRedis = r
	p.redisURL = r.URL()
	return nil
}

// createDatabase creates the demo's database. An existing database of that name is an error.
func (p *place) createDatabase(ctx context.Context) error {
	return p.onServer(ctx, "CREATE DATABASE "+p.database+" CHARACTER SET utf8mb4")
}

func (p *place) dropDatabase(ctx context.Context) error {
	return p.onServer(ctx, "DROP DATABASE "+p.database)
}

// onServer runs a statement with no database chosen.
func (p *place) onServer(ctx context.Context, statement string) error {
	server := p.mysql.Clone()
	server.DBName = ""
	db, err := open(server)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // one statement, which has been answered
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func open(c *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// databaseVersion returns the version that the database reports.
func databaseVersion(ctx context.Context, db *sql.DB) (version string, err error) {
	// Contract: no lock, no table.
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", fmt.Errorf("connect to mysql: %w", err)
	}
	if strings.Contains(version, "MariaDB") {
		return "MariaDB " + servers.ShortVersion(version), nil
	}
	return "MySQL " + servers.ShortVersion(version), nil
}

// redisVersion returns the version that Redis reports; a user of least privilege may not ask.
func redisVersion(ctx context.Context, client redis.UniversalClient) string {
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil || info["Server"]["redis_version"] == "" {
		return "Redis"
	}
	return "Redis " + info["Server"]["redis_version"]
}
