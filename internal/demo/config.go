package demo

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
)

// Config says on what the demo plays. The zero value is the demo that "make demo" shows.
type Config struct {
	// MySQLDSN names a server to use instead of a private one. Its user must be allowed to create and drop databases
	// called unstale_demo_...; the database that it names is not touched. Empty: a private server.
	MySQLDSN string
	// RedisURL names a Redis to use instead of a private one, single or behind Sentinel: redis, rediss or
	// redis+sentinel. Only keys that the demo wrote are touched. Empty: a private server.
	RedisURL string
	// Flavor is the private database: servers.KindMySQL or servers.KindMariaDB. Empty: MySQL, and MariaDB where only
	// that is installed. It cannot go with MySQLDSN.
	Flavor servers.Kind
	// MapFile is the map that the worker uses. Default mapping.yaml.
	MapFile string
	// Env gives the values of ${...} in the map, but for APP_ENV, which the demo sets. Nil: os.LookupEnv.
	Env func(name string) (string, bool)
	// Steps receives a line for each step of the start. Nil: nowhere.
	Steps io.Writer
	// Log receives the worker's log. Nil: nowhere.
	Log *slog.Logger
}

// WithDefaults returns a copy in which zero values are replaced.
func (c Config) WithDefaults() Config {
	if c.MapFile == "" {
		c.MapFile = "mapping.yaml"
	}
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	if c.Steps == nil {
		c.Steps = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names the field, its value and the rule that it breaks.
func (c Config) Validate() error {
	switch c.Flavor {
	case "", servers.KindMySQL, servers.KindMariaDB:
	default:
		return fmt.Errorf("flavor %q: wanted %s or %s", string(c.Flavor), string(servers.KindMySQL), string(servers.KindMariaDB))
	}
	if c.Flavor != "" && c.MySQLDSN != "" {
		return errors.New("flavor goes with a private server, and a MySQL was given")
	}
	if c.RedisURL == "" {
		return nil
	}
	// A message that is sent last is heard last on one server only: see listener.fence.
	if scheme, _, _ := strings.Cut(c.RedisURL, "://"); strings.Contains(scheme, "cluster") {
		return errors.New("redis url: the demo does not play on a Redis Cluster; give it a single Redis or none")
	}
	if _, err := keyspace.ParseURL(c.RedisURL, false); err != nil {
		return fmt.Errorf("redis url: %w", err)
	}
	return nil
}
