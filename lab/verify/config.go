package verify

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A Config configures a run. The zero value of a field means its default.
type Config struct {
	// Binary is the program under test. Required.
	Binary string
	// Reader is the command that becomes a reader process: it calls Read. Required.
	Reader []string
	// Clients are commands of a shell, each of which starts a reader in any language, as lab/conform
	// describes. Each runs twice. With a plant that is a reader's, it is in them alone: they find its
	// name in the variable UNSTALE_PLANT.
	Clients []string
	// Seed decides which keys are written and read, and when faults occur. Zero: a random seed,
	// which the report names.
	Seed uint64
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// For is how long to measure, without the starts of servers. Phases begin until it has passed,
	// each at least once. Default 1 min.
	For time.Duration
	// Turn is how long one turn of a phase writes and injects faults. Calm turns take twelve times
	// as long. Default 12 s.
	Turn time.Duration
	// Cluster uses a Redis Cluster of three masters, each with a replica, and its phases.
	Cluster bool
	// Phases are the names of the phases to run. None means all.
	Phases []string
	// Plant is the name of a bug to plant. Without Phases, only the phase that reveals it runs.
	Plant string
	// Workers and Readers are numbers of processes. Default 2 each; no Readers beside Clients.
	Workers, Readers int
	// Reads and Writes are the total target rates per second. Default 9,000 and 1,100.
	Reads, Writes int
	// Keys is the number of keys per turn. Default 128.
	Keys int
	// RawValues gives readers a codec that is not JSON: the entries of every second process have
	// format 2, those of the others base64. Readers of an older program then share nothing.
	RawValues bool
	// UntilStale ends the run at the first stale entry that a worker finds.
	UntilStale bool
	// UntilFound ends the run at the first violation. Workers make no spot checks, which would
	// repair what readers find.
	UntilFound bool
	// UntilDiffers gives readers shadow reads, and workers no spot checks. The run ends at the first
	// difference that a worker confirms.
	UntilDiffers bool
	// Progress receives a line after each turn. Nil: none.
	Progress io.Writer
}

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	rig.OrDefault(&c.For, time.Minute)
	rig.OrDefault(&c.Turn, 12*time.Second)
	rig.OrDefault(&c.Workers, 2)
	if len(c.Clients) == 0 {
		rig.OrDefault(&c.Readers, 2)
	}
	rig.OrDefault(&c.Reads, 9000)
	rig.OrDefault(&c.Writes, 1100)
	rig.OrDefault(&c.Keys, 128)
	if i := plantIndex(c.Plant); i >= 0 && len(c.Phases) == 0 {
		c.Phases = []string{Plants[i].phase}
	}
	if len(c.Phases) == 0 {
		c.Phases = PhaseNames(c.Cluster)
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// processes returns the number of reader processes.
func (c Config) processes() int { return c.Readers + clientCopies*len(c.Clients) }

func plantIndex(name string) int {
	return slices.IndexFunc(Plants, func(p Plant) bool { return p.Name == name })
}

// Validate returns an error that names the invalid field.
func (c Config) Validate() error {
	switch {
	case c.Binary == "":
		return fmt.Errorf("binary: name the program under test")
	case len(c.Reader) == 0:
		return fmt.Errorf("reader: name the command of a reader process")
	case c.Workers < 2, c.processes() < 1, c.Reads < 1, c.Writes < 1:
		return fmt.Errorf("workers must be 2 or more; readers, reads and writes 1 or more")
	case c.Keys < writersAtOnce, c.Keys >= turnIDs:
		return fmt.Errorf("keys %d: must be %d to %d", c.Keys, writersAtOnce, turnIDs-1)
	case c.For < time.Second, c.Turn < time.Second:
		return fmt.Errorf("for %s, turn %s: both must be at least 1s", c.For, c.Turn)
	case c.Plant != "" && plantIndex(c.Plant) < 0:
		return fmt.Errorf("there is no plant %q; the plants are %s", c.Plant, strings.Join(plantNames(), ", "))
	}
	if len(c.Clients) > 0 && (c.Plant == deaf || c.Plant == forgedBeats) {
		return fmt.Errorf("plant %q: it is a bug of package cache or of L1, which clients do not have", c.Plant)
	}
	if c.Plant != "" && c.Cluster {
		return fmt.Errorf("plant %q: plants need a single Redis", c.Plant)
	}
	names := PhaseNames(c.Cluster)
	for _, name := range c.Phases {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no phase %q; the phases are: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}
