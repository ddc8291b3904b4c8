package upgrade

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A Release is the programs of one release. Both are required.
type Release struct {
	Program string // unstale
	Reader  string // lab/upgrade/reader
}

// A BaselineConfig sets what [Baseline] compares. Both programs are required.
type BaselineConfig struct {
	// Steps is the program of the commit schema.Steps, New that of the present release.
	Steps, New string
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Progress takes a line per check. Nil: none.
	Progress io.Writer
}

// A Config sets what to run. The zero value of a field means its default.
type Config struct {
	// Old is the previous release, and New the present one. The schema of New must be newer.
	Old, New Release
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Rows is how many rows are committed in each phase, at least. Default 1000.
	Rows int
	// Patience is how long a step of a phase can take. Default 60 s.
	Patience time.Duration
	// Progress takes a line per phase. Nil: none.
	Progress io.Writer
}

func (c Config) withDefaults() (Config, error) {
	rig.OrDefault(&c.Rows, 1000)
	rig.OrDefault(&c.Patience, time.Minute)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	switch {
	case c.Old.Program == "" || c.Old.Reader == "" || c.New.Program == "" || c.New.Reader == "":
		return c, errors.New("name the programs of the old and of the new release; make test-upgrade builds them")
	case c.Rows < 1 || c.Patience < time.Second:
		return c, fmt.Errorf("rows %d, patience %s: must be at least 1 and 1s", c.Rows, c.Patience)
	}
	return c, nil
}
