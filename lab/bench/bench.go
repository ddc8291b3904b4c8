package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// A Config sets what to measure and how. The zero value of a field means its default.
type Config struct {
	// RedisURL is a Redis to measure on, whose database must be empty and is left empty. Empty: a
	// private one.
	RedisURL string
	// Flavor is the private database, MySQL or MariaDB. Empty means MySQL if it is installed,
	// otherwise MariaDB.
	Flavor servers.Kind
	// MySQLDSN is a MySQL to measure on, in a database that is made and dropped. Empty: a private
	// one.
	MySQLDSN string
	// Map is the text of a map with the entities of the shipped map, for the modes that draw rows
	// of all kinds. If it is empty, these modes leave such rows out.
	Map string
	// Workers is how many workers run in parallel in the modes drain and cost. 1 to 64. Default 1.
	Workers int
	// Runs is how often unstale and the floor alternate. 1 to 100. Default 5.
	Runs int
	// Scale divides the amount of work, for tests. Figures of a scale other than 1 say nothing.
	// Default 1.
	Scale int
	// Reader is the command of a process that calls ReadAtOnce with its standard input and output.
	// The mode cache needs it.
	Reader []string
	// Binary is the program "unstale". The mode heavy measures a process of it.
	Binary string
	// Only is the one kind of rows that the mode heavy measures, the one table of the mode migrate,
	// or "pinned" for the hits, misses and warm-up of the mode cache. Empty: all.
	Only string
	// Progress receives one line per step. Nil discards them.
	Progress io.Writer
}

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	if c.Runs == 0 {
		c.Runs = 5
	}
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Scale == 0 {
		c.Scale = 1
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Validate names the field, its value and the rule that it breaks.
func (c Config) Validate() error {
	if c.Runs < 1 || c.Runs > 100 {
		return fmt.Errorf("runs %d: must be 1 to 100", c.Runs)
	}
	if c.Workers < 1 || c.Workers > 64 {
		return fmt.Errorf("workers %d: must be 1 to 64", c.Workers)
	}
	if c.Scale < 1 || c.Scale > 1000 {
		return fmt.Errorf("scale %d: must be 1 to 1000", c.Scale)
	}
	return nil
}

// A Report is the result of a mode.
type Report struct {
	Mode    string         `json:"mode"`
	Ours    float64        `json:"ours"`  // median
	Floor   float64        `json:"floor"` // median
	Ratio   float64        `json:"ratio"` // ours/floor
	Unit    string         `json:"unit"`
	Runs    int            `json:"runs"`
	Machine Machine        `json:"machine"`
	Details map[string]any `json:"details"`
}

// A mode measures one thing.
type mode struct {
	about string
	run   func(context.Context, Config) (*Report, error)
}

var modes = map[string]mode{
	"backlog": {"rows per second from backlogs of 100,000 to five million rows, and the memory that it takes", backlog},
	"cache":   {"hits, misses, load and warm-up of package cache, compared with otter, GET and SET; and the loads of a key that 1,000 callers miss", readThrough},
	"cascade": {"a delete of a parent whose trigger writes the rows of its grandchildren, without triggers as well; and rows lost", cascades},
	"capture": {"a transaction whose row a trigger inserts, compared with one that inserts it itself; and an UPDATE of 100,000 rows", captured},
	"cost":    {"processor time and log flushes of a commit at 20, 100 and 500 per second, compared with no worker", costs},
	"doctor":  {"what another client notices of a review of a million keys: its GETs, compared with an idle Redis", doctorMode},
	"head":    {"a poll while a million deleted rows are not purged, compared with one without them; and late commits", head},
	"drain":   {"rows per second from a full outbox, compared with the shortest loop that does the same", drain},
	"enqueue": {"a transaction with Enqueue, compared with one with a bare INSERT", enqueue},
	"heavy":   {"light rows behind rows of 9,000 values each, compared with the longest wait allowed; and the memory of the worker", heavy},
	"history": {"searches of a journal of ten million rows, in batches of 1,000 and of 1, compared with a scan of it", history},
	"migrate": {"each migration after the baseline that alters a big table, with ten million rows in it, compared with a scan of the table", migrate},
	"latency": {"time from a commit to its UNLINK, at 500 commits per second, compared with the shortest loop", latency},
	"expand":  {"rows per second through a compiled map, compared with the concatenation of the key", expand},
	"proof":   {"commands and processor time of spot checks at 1,000 invalidations per second, compared with none", proof},
	"unlink":  {"keys per second through keyspace, compared with a raw pipeline", unlink},
	"idle":    {"queries and processor time of a worker without work, for a minute", idle},
	"sets":    {"index sets per second, compared with the shortest loop, enumerated keys and a scan; and how long a pattern waits behind them", sets},
	"sweep":   {"one scan of a million keys for many patterns, compared with a bare SCAN of them", sweep},
}

// Modes lists the modes, each with a description.
func Modes() []string {
	var list []string
	for _, name := range Names() {
		list = append(list, fmt.Sprintf("%-8s %s", name, modes[name].about))
	}
	return list
}

// Names lists the names of the modes.
func Names() []string { return slices.Sorted(maps.Keys(modes)) }

// Run measures. An unknown mode is an error that lists the known ones.
func Run(ctx context.Context, name string, cfg Config) (*Report, error) {
	m, ok := modes[name]
	if !ok {
		return nil, fmt.Errorf("there is no mode %q; the modes are %s", name, strings.Join(Names(), ", "))
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r, err := m.run(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("bench %s: %w", name, err)
	}
	r.Mode, r.Ratio = name, r.Ours/r.Floor
	if r.Runs == 0 {
		r.Runs = cfg.Runs
	}
	return r, nil
}

// timed returns how many seconds do takes.
func timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}

// median of at least one figure.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
