package forgotten

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A Config configures a run. The zero value of a field means its default.
type Config struct {
	// Binary is the program under test. Required.
	Binary string
	// Seed decides which keys are written and read. Zero: a random seed, which the report names.
	Seed uint64
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Reads is how many reads there are before the first path. Default 1,000,000.
	Reads int
	// Writes is how many writes with rows there are per second. Default 100.
	Writes int
	// Fraction is cache.Shadow.Fraction. Default 0.1.
	Fraction float64
	// Patience is how long a path may take. Default 2 min.
	Patience time.Duration
	// Progress receives a line per path. Nil: none.
	Progress io.Writer
}

func (c Config) withDefaults() (Config, error) {
	rig.OrDefault(&c.Reads, 1_000_000)
	rig.OrDefault(&c.Writes, 100)
	rig.OrDefault(&c.Patience, 2*time.Minute)
	if c.Fraction == 0 {
		c.Fraction = 0.1
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	switch {
	case c.Binary == "":
		return c, errors.New("binary: name the program under test")
	case c.Reads < 1 || c.Writes < 1 || c.Patience < time.Second || c.Fraction < 0 || c.Fraction > 1:
		return c, fmt.Errorf("reads %d, writes %d, patience %s, fraction %v: must be at least 1, 1 and 1s, and 0 to 1", c.Reads, c.Writes, c.Patience, c.Fraction)
	}
	return c, nil
}
