package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// A Config configures a run. The zero value of a field means its default.
type Config struct {
	// Command is the client, with its arguments. Required.
	Command []string
	// RedisURL names an empty database of a scratch server. Empty: a private server is started.
	RedisURL string
	// Seed decides the schedules of two readers. Zero: a random seed, which the report names.
	Seed uint64
	// Pairs is how many schedules of two readers there are. Default 500; negative: none.
	Pairs int
	// Every plays each so many-th schedule of those with an event and of those of two readers.
	// Default 1: all.
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
	if u, err := url.Parse(c.RedisURL); c.RedisURL != "" && (err != nil || u.Scheme != "redis" || u.User != nil) {
		return errors.New("redis-url: wanted redis://HOST:PORT/0, without TLS and a password: the judge reads what the client sends")
	}
	for _, name := range c.Only {
		if len(c.chosen(c.schedules(true), name)) == 0 {
			return fmt.Errorf("there is no schedule %q: names are such as case/gap, order/12/key/copy/3, order/12 and pair/017", name)
		}
	}
	return nil
}

// A kind is a list of schedules.
type kind struct {
	name      string
	schedules []schedule
	many      bool // Config.Every counts
}

// schedules returns all schedules.
func (c Config) schedules(withClock bool) []kind {
	plain, eventful := orderSchedules(withClock)
	kinds := []kind{
		{"cases", caseSchedules(), false}, {"one reader", plain, false},
		{"one reader and an event", eventful, true}, {"two readers", pairSchedules(c.Seed, c.Pairs), true},
	}
	if c.RedisURL == "" {
		kinds = append(kinds, kind{"a slot that moves", clusterSchedules(), true})
	}
	return kinds
}

// chosen returns the schedules of a name, or of all names that begin so.
func (c Config) chosen(kinds []kind, name string) (found []schedule) {
	for _, k := range kinds {
		for _, s := range k.schedules {
			if s.name == name || strings.HasPrefix(s.name, strings.TrimSuffix(name, "/")+"/") {
				found = append(found, s)
			}
		}
	}
	return found
}

// narrowed returns the schedules to play.
func (c Config) narrowed(withClock bool) []kind {
	kinds := c.schedules(withClock)
	if len(c.Only) > 0 {
		only := kind{name: "chosen"}
		for _, name := range c.Only {
			only.schedules = append(only.schedules, c.chosen(kinds, name)...)
		}
		return []kind{only}
	}
	for i := range kinds {
		if !kinds[i].many {
			continue
		}
		var some []schedule
		for next := range slices.Chunk(kinds[i].schedules, c.Every) {
			some = append(some, next[0])
		}
		kinds[i].schedules = some
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
	w, err := openWorld(ctx, cfg.RedisURL, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	began := time.Now()
	working, stop := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() { w.heartbeats(working) })
	defer func() { stop(); beating.Wait() }()
	p := newPlayer(ctx, w, &ledger{schedule: "start"})
	p.command, p.working = cfg.Command, working
	report = &Report{Seed: cfg.Seed, Command: strings.Join(cfg.Command, " "), NotPlayed: []string{}, Kinds: []Played{}}
	defer func() { report.add(p, time.Since(began)) }()
	defer func() { stop(); err = errors.Join(err, p.dismiss(err == nil && len(p.ledger.breaches) == 0)) }()
	for range 2 {
		if err := p.enlist(cfg.Command, working); err != nil {
			return report, err
		}
	}
	if w.clock == nil {
		report.NotPlayed = append(report.NotPlayed, "event clock: the clock of Redis cannot be set: "+w.noClock.Error())
	}
	if !p.clients[0].ready.Many {
		report.NotPlayed = append(report.NotPlayed, "case/many: the client takes no fetchMany")
	}
	if !p.clients[0].ready.Cluster || cfg.RedisURL != "" {
		report.NotPlayed = append(report.NotPlayed, "cluster: the client takes no Redis Cluster, or the judge has not started Redis")
	}
	for _, k := range cfg.narrowed(w.clock != nil) {
		if more, err := p.playAll(k, report, cfg); err != nil || !more {
			return report, err
		}
	}
	return report, nil
}

// playAll plays schedules. It reports false if the client has broken a rule, or is stuck.
func (p *player) playAll(k kind, report *Report, cfg Config) (more bool, err error) {
	report.Kinds = append(report.Kinds, Played{Kind: k.name})
	played := &report.Kinds[len(report.Kinds)-1]
	began := time.Now()
	defer func() {
		played.Took = time.Since(began)
		fmt.Fprintf(cfg.Progress, "conform: %s: %d schedules, %d rules broken\n", k.name, played.Schedules, len(p.ledger.breaches))
	}()
	for _, s := range k.schedules {
		if s.needs != nil && !s.needs(p.clients[0].ready) {
			continue
		}
		p.ledger.schedule = s.name
		_, err := p.memories()
		if err == nil {
			err = s.play(p)
		}
		played.Schedules++
		if errors.Is(err, errStuck) {
			p.blameStuck()
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("schedule %s: %w", s.name, err)
		}
		times := 0
		for _, b := range p.ledger.breaches {
			times += b.Times
		}
		if times >= cfg.Most {
			break
		}
	}
	return len(p.ledger.breaches) == 0, nil
}

// blameStuck says what the client has to do.
func (p *player) blameStuck() {
	waiting := 0
	for _, r := range p.reads {
		if r.runs() {
			waiting++
		}
	}
	p.ledger.breach("answers", "the client did nothing for %v: %d reads have no result, %d loads and %d round trips were held", patience, waiting, len(p.loads), len(p.held))
}

// dismiss ends the processes and proxies, after the context of enlist. A client must end when its
// standard input does.
func (p *player) dismiss(orderly bool) (err error) {
	if q := p.moving; q != nil {
		err = errors.Join(q.dismiss(orderly), q.world.end())
	}
	for _, c := range p.clients {
		if orderly {
			c.process.DismissWith(Line{Type: LineClose})
		} else {
			c.process.Dismiss()
		}
		if ended := c.process.Wait(10 * time.Second); orderly {
			err = errors.Join(err, ended)
		}
		c.proxy.stop()
	}
	return err
}
