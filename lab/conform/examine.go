package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/lab/rig"
)

// A Config configures a run. The zero value of a field means its default.
type Config struct {
	// Command is the client, with its arguments. Required.
	Command []string
	// Seed decides the schedules of two readers. Zero: a random seed, which the report names.
	Seed uint64
	// Pairs is how many schedules of two readers there are. Default 500; negative: none.
	Pairs int
	// Every plays each so many-th schedule of those with an event, of those of two readers, and of
	// those of a slot that moves. Default 1: all.
	Every int
	// Only plays schedules of these names, or whose names begin so, up to a slash. Empty: all.
	Only []string
	// Most is how many breaches end the run, which also ends after the first kind of schedules with
	// a breach. Default 20.
	Most int
	// Progress receives a line per kind of schedules. Nil: none.
	Progress io.Writer
}

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	rig.OrDefault(&c.Pairs, 500)
	rig.OrDefault(&c.Every, 1)
	rig.OrDefault(&c.Most, 20)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Validate returns an error that names the invalid field.
func (c Config) Validate() error {
	if len(c.Command) == 0 {
		return errors.New("name the command of the client after --")
	}
	if c.Every < 1 || c.Most < 1 {
		return fmt.Errorf("every %d, most %d: both must be at least 1", c.Every, c.Most)
	}
	for _, name := range c.Only {
		if c.Only = []string{name}; len(c.kinds(true)[0].schedules) == 0 {
			return fmt.Errorf("there is no schedule %q: names are such as case/gap, order/12/key/copy/3, order/12 and pair/017", name)
		}
	}
	return nil
}

// A kind is a list of schedules.
type kind struct {
	name      string
	schedules []schedule
	every     int // so many-th is played
}

// kinds returns the schedules to play.
func (c Config) kinds(withClock bool) []kind {
	plain, eventful := orderSchedules(withClock)
	kinds := []kind{
		{"cases", caseSchedules(), 1}, {"one reader", plain, 1}, {"one reader and an event", eventful, c.Every},
		{"two readers", pairSchedules(c.Seed, c.Pairs), c.Every}, {"a slot that moves", clusterSchedules(), c.Every},
	}
	chosen := kind{name: "chosen"}
	for i, k := range kinds {
		kinds[i].schedules = nil
		for j, s := range k.schedules {
			if j%k.every == 0 {
				kinds[i].schedules = append(kinds[i].schedules, s)
			}
			if slices.ContainsFunc(c.Only, func(name string) bool {
				return s.name == name || strings.HasPrefix(s.name, strings.TrimSuffix(name, "/")+"/")
			}) {
				chosen.schedules = append(chosen.schedules, s)
			}
		}
	}
	if len(c.Only) > 0 {
		return []kind{chosen}
	}
	return kinds
}

// Examine judges a client. The error is about the run: a client that broke a rule is in the report.
// The report is nil if nothing was played.
func Examine(ctx context.Context, cfg Config) (report *Report, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, clean, err := rig.Begin("conform", &cfg.Seed, cfg.Progress)
	if err != nil {
		return nil, err
	}
	defer clean()
	library, noClock := clock.Library(dir)
	node, err := rig.StartNode(ctx, rig.NodeOptions{Library: library})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	report = &Report{Seed: cfg.Seed, Command: strings.Join(cfg.Command, " "), NotPlayed: []string{}, Kinds: []Played{}}
	if noClock != nil {
		report.NotPlayed = append(report.NotPlayed, "event clock: the clock of Redis cannot be set: "+noClock.Error())
	}
	ctx, stop := context.WithCancel(ctx)
	p := newPlayer(openWorld(ctx, node, nil), cfg.Command, &ledger{schedule: "start"})
	began := time.Now()
	defer func() {
		stop()
		err = errors.Join(err, p.dismiss(err == nil && len(p.ledger.breaches) == 0))
		report.add(p, time.Since(began))
	}()
	err = attempt(func() {
		report.Redis = p.world.prepare()
		p.enlist()
		p.enlist()
	})
	if err != nil {
		return report, err
	}
	ready := p.clients[0].ready
	if !ready.Many {
		report.NotPlayed = append(report.NotPlayed, "case/many: the client takes no fetchMany")
	}
	if !ready.Cluster {
		report.NotPlayed = append(report.NotPlayed, "cluster: the client takes no Redis Cluster")
	}
	for _, k := range cfg.kinds(p.world.clock != nil) {
		if err := p.playAll(k, report, cfg); err != nil || len(p.ledger.breaches) > 0 {
			return report, err
		}
	}
	return report, nil
}

// playAll plays schedules, until the client has broken enough rules or is stuck.
func (p *player) playAll(k kind, report *Report, cfg Config) error {
	played := Played{Kind: k.name}
	began := time.Now()
	defer func() {
		played.Took = time.Since(began)
		report.Kinds = append(report.Kinds, played)
		fmt.Fprintf(cfg.Progress, "conform: %s: %d schedules, %d rules broken\n", k.name, played.Schedules, len(p.ledger.breaches))
	}()
	for _, s := range k.schedules {
		if p.ledger.found >= cfg.Most {
			break
		}
		if s.needs != nil && !s.needs(p.clients[0].ready) {
			continue
		}
		p.ledger.schedule = s.name
		err := attempt(func() { p.memories(); s.play(p) })
		played.Schedules++
		if errors.Is(err, errStuck) {
			p.blameStuck()
			break
		}
		if err != nil {
			return fmt.Errorf("schedule %s: %w", s.name, err)
		}
	}
	return nil
}

// blameStuck says what the client has to do.
func (p *player) blameStuck() {
	waiting := 0
	for _, r := range p.calls {
		if r.runs() {
			waiting++
		}
	}
	p.ledger.breach("answers", "the client did nothing for %v: %d reads have no result, %d loads and %d round trips were held", patience, waiting, len(p.loads), len(p.held))
}
