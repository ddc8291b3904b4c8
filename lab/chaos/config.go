package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A Config sets what to run. The zero value of a field means its default.
type Config struct {
	// Binary is the program under test. Required.
	Binary string
	// Seed decides the schedule. Zero: a random one, which the report names.
	Seed uint64
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Topology of the database, one of Topologies. Default OneServer.
	Topology string
	// Workers is the number of workers. Default 3.
	Workers int
	// Writers is the number of concurrent writers of transactions. Default 12.
	Writers int
	// Decks is how often every fault of the deck happens, at least. Default 1.
	Decks int
	// Proven is how many transactions must be proven before the end. Default 1.
	Proven int
	// Kills is how many workers must have been killed before the end. Default 1.
	Kills int
	// Round is how long the shop writes between two checks. Default 20 s.
	Round time.Duration
	// Patience is how long a check waits for work that the workers still have to do. Default 60 s.
	Patience time.Duration
	// Progress takes a line every few seconds. Nil: none.
	Progress io.Writer
}

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	if c.Topology == "" {
		c.Topology = OneServer
	}
	rig.OrDefault(&c.Workers, 3)
	rig.OrDefault(&c.Writers, 12)
	rig.OrDefault(&c.Decks, 1)
	rig.OrDefault(&c.Proven, 1)
	rig.OrDefault(&c.Kills, 1)
	rig.OrDefault(&c.Round, 20*time.Second)
	rig.OrDefault(&c.Patience, time.Minute)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Validate names the field at fault.
func (c Config) Validate() error {
	switch {
	case c.Binary == "":
		return fmt.Errorf("binary: name the program under test")
	case !slices.Contains(Topologies, c.Topology):
		return fmt.Errorf("topology %q: it must be one of %s", c.Topology, strings.Join(Topologies, ", "))
	case c.Topology == OnePrimary && c.Flavor == servers.KindMariaDB:
		return fmt.Errorf("topology %s: MariaDB has no Group Replication; use %s", OnePrimary, Primaries)
	case c.Workers < 1, c.Writers < 1, c.Decks < 1, c.Proven < 1, c.Kills < 1:
		return fmt.Errorf("workers, writers, decks, proven and kills must be 1 or more")
	case c.Round < time.Second, c.Patience < time.Second:
		return fmt.Errorf("round %s, patience %s: both must be at least 1s", c.Round, c.Patience)
	}
	return nil
}
