package demo

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/redisurl"
)

// Config configures a demo. The zero value is the demo that "make demo" shows.
type Config struct {
	// MySQLDSN names a server to use instead of a private one. Its user must be allowed to create
	// and drop databases called unstale_demo_...; the demo does not touch the database in the DSN.
	// Empty: a private server.
	MySQLDSN string
	// RedisURL names a Redis to use instead of a private one, single or behind Sentinel: redis,
	// rediss or redis+sentinel. Only keys that the demo wrote are touched. Empty: a private server.
	RedisURL string
	// Flavor is the kind of the private database: servers.KindMySQL or servers.KindMariaDB. Empty:
	// MySQL, or MariaDB if there is no MySQL: see Fallback. It cannot be combined with MySQLDSN.
	Flavor servers.Kind
	// MapFile is the map that the worker uses. Default mapping.yaml.
	MapFile string
	// Env returns the environment variables of the map, except KEY_PREFIX and APP_ENV, which the
	// demo sets. Nil means os.LookupEnv.
	Env func(name string) (string, bool)
	// Steps receives a line for each step of the start. Nil: nowhere.
	Steps io.Writer
	// Logger receives the worker's log. Nil: nowhere.
	Logger *slog.Logger
}

// WithDefaults returns a copy with defaults in place of zero values.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that names the field, its value and the violated rule.
func (c Config) Validate() error {
	switch c.Flavor {
	case "", servers.KindMySQL, servers.KindMariaDB:
	default:
		return fmt.Errorf("flavor %q: must be %s or %s", string(c.Flavor), string(servers.KindMySQL), string(servers.KindMariaDB))
	}
	if c.Flavor != "" && c.MySQLDSN != "" {
		return errors.New("flavor cannot be combined with a given MySQL; it selects the private server")
	}
	if c.RedisURL == "" {
		return nil
	}
	// listener.fence needs a single server, where the message that is sent last also arrives last.
	if scheme, _, _ := strings.Cut(c.RedisURL, "://"); strings.Contains(scheme, "cluster") {
		return errors.New("redis url: the demo does not support Redis Cluster; use a single Redis, or leave it out for a private one")
	}
	if _, err := redisurl.Parse(c.RedisURL, false); err != nil {
		return fmt.Errorf("redis url: %w", err)
	}
	return nil
}
