package verifylocks

import (
	"errors"
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
	// Holder is the command that becomes a holder process: it calls Hold. Required.
	Holder []string
	// Seed decides which locks are taken, and when things break. Zero: a random one, which the
	// report names.
	Seed uint64
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Sections is how many guarded sections must be committed before the end. Each phase runs at
	// least once. Default 1.
	Sections int
	// Rounds is how many more rounds to run, beyond Sections, until bare sections have lost an
	// update. Default 10.
	Rounds int
	// Turn is how long things are broken in one turn of a phase. Default 15 s.
	Turn time.Duration
	// TTL of the locks. Default 1 s.
	TTL time.Duration
	// Backends are the names of those whose sections run. None: all.
	Backends []string
	// Phases are the names of the phases to run. None means all that concern one of Backends.
	Phases []string
	// Plant is the name of a bug to plant. Without Phases, only the phase that reveals it runs.
	Plant string
	// Holders is the number of holder processes. Default 3.
	Holders int
	// UntilFound ends the run when a guarded update is lost.
	UntilFound bool
	// Progress takes a line after each turn. Nil: none.
	Progress io.Writer
}

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	rig.OrDefault(&c.Sections, 1)
	rig.OrDefault(&c.Rounds, 10)
	rig.OrDefault(&c.Turn, 15*time.Second)
	rig.OrDefault(&c.TTL, time.Second)
	rig.OrDefault(&c.Holders, 3)
	if len(c.Backends) == 0 {
		c.Backends = Backends()
	}
	if i := plantIndex(c.Plant); i >= 0 && len(c.Phases) == 0 {
		c.Phases = []string{Plants[i].phase}
	}
	if len(c.Phases) == 0 {
		for _, p := range phases {
			if len(p.in(c.Backends)) > 0 {
				c.Phases = append(c.Phases, p.Name)
			}
		}
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

func plantIndex(name string) int {
	return slices.IndexFunc(Plants, func(p Plant) bool { return p.Name == name })
}

// Validate names the field at fault.
func (c Config) Validate() error {
	switch {
	case len(c.Holder) == 0:
		return errors.New("holder: name the command of a holder process")
	case c.Holders < 2, c.Sections < 1:
		return fmt.Errorf("holders are %d, wanted 2 or more; sections %d, wanted 1 or more", c.Holders, c.Sections)
	case c.Turn < time.Second, c.TTL < 300*time.Millisecond:
		return fmt.Errorf("turn %s, wanted a second or more; ttl %s, wanted 300ms or more", c.Turn, c.TTL)
	case c.Plant != "" && plantIndex(c.Plant) < 0:
		return fmt.Errorf("there is no plant %q; the plants are %s", c.Plant, strings.Join(plantNames(), ", "))
	}
	for _, name := range c.Backends {
		if !slices.Contains(Backends(), name) {
			return fmt.Errorf("there is no backend %q; the backends are: %s", name, strings.Join(Backends(), ", "))
		}
	}
	for _, name := range c.Phases {
		i := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no phase %q; the phases are: %s", name, strings.Join(PhaseNames(), ", "))
		}
		if len(phases[i].in(c.Backends)) == 0 {
			return fmt.Errorf("phase %q is one of backend %q, which is not chosen", name, phases[i].of)
		}
	}
	return nil
}
