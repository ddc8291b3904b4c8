package outbox

import (
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// StoreConfig says how a [Store] reaches MySQL and how long it may hold rows.
type StoreConfig struct {
	// DSN is a go-sql-driver data source name. parseTime, loc, interpolateParams and multiStatements are
	// set by the store, whatever the DSN says; it must name a database. Required.
	DSN string
	// Worker names this process in the journal, at most 64 characters. Required.
	Worker string
	// ClaimTimeout is when the server throws out a worker that vanished in mid-claim, so that its rows are
	// free again: the wait_timeout, net_read_timeout, net_write_timeout and lock timeouts of the claiming
	// session. Whole seconds, 2 s to 5 min. Zero: 10 s. A batch must end within half of it.
	ClaimTimeout time.Duration
	// StatementTimeout bounds every statement outside a claim (status, sweeps, retention), and each answer
	// of the server inside one. Zero: 5 s.
	StatementTimeout time.Duration
}

// WithDefaults returns a copy in which zero values are replaced.
func (c StoreConfig) WithDefaults() StoreConfig {
	if c.ClaimTimeout == 0 {
		c.ClaimTimeout = 10 * time.Second
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 5 * time.Second
	}
	return c
}

// Validate names the field, its value and the rule that it breaks.
func (c StoreConfig) Validate() error {
	if n := len(c.Worker); n == 0 || n > 64 {
		return fmt.Errorf("worker name %q: has %d bytes, wanted 1 to 64", c.Worker, n)
	}
	if t := c.ClaimTimeout; t < 2*time.Second || t > 5*time.Minute || t%time.Second != 0 {
		return fmt.Errorf("claim timeout %s: wanted whole seconds from 2s to 5m", t)
	}
	if t := c.StatementTimeout; t < 100*time.Millisecond || t > 5*time.Minute {
		return fmt.Errorf("statement timeout %s: wanted 100ms to 5m", t)
	}
	_, err := c.driver()
	return err
}

// driver turns the DSN into the driver's settings. Errors never show the DSN: it holds a password.
func (c StoreConfig) driver() (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w; wanted user:password@tcp(host:3306)/database", err)
	}
	if cfg.DBName == "" {
		return nil, fmt.Errorf("mysql dsn: names no database; wanted user:password@tcp(host:3306)/database")
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.InterpolateParams = true // one round trip a statement; safe with utf8mb4
	cfg.MultiStatements = false
	cfg.MaxAllowedPacket = 0        // ask the server, so that what it would not take is an error and not a lost connection
	cfg.Logger = &mysql.NopLogger{} // errors are returned; the loop logs them once
	if cfg.Timeout == 0 {
		cfg.Timeout = c.StatementTimeout
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = c.StatementTimeout
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = c.StatementTimeout
	}
	return cfg, nil
}
