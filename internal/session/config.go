package session

import (
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Config configures how [Sessions] reach MySQL and how long they may hold rows.
type Config struct {
	// MySQL is the server, from [ParseDSN]. It must name a database. Parameters that change the
	// meaning of statements are overridden, and system variables (Params) that the store does not
	// pin are refused: see docs/settings.md. Required.
	MySQL *mysql.Config
	// Worker names this process in the journal, at most 64 characters. Required.
	Worker string
	// Operator is the operator that runs a command, as the program claims: user@host. The audit
	// keeps 255 characters of it. Only operators' commands set it.
	Operator string
	// ClaimTimeout is how long the server waits before it disconnects a worker that vanished during
	// a claim, which frees its rows: the wait_timeout, net_read_timeout, net_write_timeout and lock
	// timeouts of the claiming session. Whole seconds, 2 s to 5 min. Zero: 10 s. A batch must end
	// within half of it.
	ClaimTimeout time.Duration
	// StatementTimeout bounds every statement outside a claim (status, sweeps, retention), and each
	// reply of the server inside one. Zero: 5 s.
	StatementTimeout time.Duration
	// LookupTimeout bounds one lookup of the map, on the server. The client waits a little longer.
	// 10 ms to 2 s. Zero: 200 ms.
	LookupTimeout time.Duration
}

// WithDefaults returns a copy of c with zero values replaced by the defaults.
func (c Config) WithDefaults() Config {
	if c.ClaimTimeout == 0 {
		c.ClaimTimeout = 10 * time.Second
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 5 * time.Second
	}
	if c.LookupTimeout == 0 {
		c.LookupTimeout = 200 * time.Millisecond
	}
	return c
}

// Validate checks c. Its error names the field, the value and the rule.
func (c Config) Validate() error {
	if n := len(c.Worker); n == 0 || n > 64 {
		return fmt.Errorf("worker name %q: has %d bytes, wanted 1 to 64", c.Worker, n)
	}
	if t := c.ClaimTimeout; t < 2*time.Second || t > 5*time.Minute || t%time.Second != 0 {
		return fmt.Errorf("claim timeout %s: wanted whole seconds from 2s to 5m", t)
	}
	if t := c.StatementTimeout; t < 100*time.Millisecond || t > 5*time.Minute {
		return fmt.Errorf("statement timeout %s: wanted 100ms to 5m", t)
	}
	if t := c.LookupTimeout; t < 10*time.Millisecond || t > 2*time.Second {
		return fmt.Errorf("lookup timeout %s: wanted 10ms to 2s", t)
	}
	_, err := c.driver()
	return err
}
