package upgrade

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

const (
	database  = "upgrade"
	workerMap = `version: 1
lease: 1s # the shortest time until a sweep is settled
entities:
  thing: {keys: ["upgrade:thing:{id}"]}
  shelf: {patterns: ["upgrade:shelf:{id}:*"]}
`
)

// Run runs the phases. The error is the reason for a missing result; failures that a check found
// are in the report.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	dir, err := os.MkdirTemp("", "unstale-upgrade-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	database, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: rig.MySQLArgs})
	if err != nil {
		return nil, err
	}
	defer func() { _ = database.Close() }() // a private server
	node, err := rig.StartNode(ctx, rig.NodeOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }() // likewise
	p := &play{cfg: cfg, url: node.Server.URL(), cache: node.Client}
	p.report.Servers = fmt.Sprintf("%s %s and Redis %s", database.Flavor(), servers.ShortVersion(database.Version()), node.Server.Version())
	if err := p.open(ctx, database, dir); err != nil {
		return nil, err
	}
	defer p.close()
	began := time.Now()
	err = p.run(ctx)
	p.report.Took = time.Since(began)
	return &p.report, err
}

// A play is the state of one run.
type play struct {
	cfg      Config
	url      string // of Redis
	cache    *redis.Client
	db       *sql.DB
	load     *load
	old, new *crew
	report   Report
	entries  int // numbers the keys of readers
}

// A crew is the workers of one release.
type crew struct {
	*rig.Fleet
	Release
	started, running int
	reported         int // lines in their logs that were counted
}

func (p *play) open(ctx context.Context, server *servers.MySQL, dir string) (err error) {
	if err := rig.Prepare(ctx, server, "CREATE DATABASE "+database); err != nil {
		return err
	}
	if p.db, err = sql.Open("mysql", rig.DSN(server, database)); err != nil {
		return err
	}
	p.load = newLoad(p.db, p.cache)
	env := []string{"MYSQL_DSN=" + server.DSN(database), "REDIS_URL=" + p.url, "UNSTALE_RETRY_DELAY=100ms"}
	for name, c := range map[string]struct {
		Release
		to **crew
	}{"old": {p.cfg.Old, &p.old}, "new": {p.cfg.New, &p.new}} {
		place := filepath.Join(dir, name)
		if err := os.Mkdir(place, 0o700); err != nil {
			return err
		}
		fleet, err := rig.New(c.Program, place, workerMap, env)
		if err != nil {
			return err
		}
		fleet.Prefix = name
		*c.to = &crew{Fleet: fleet, Release: c.Release}
	}
	return nil
}

func (p *play) close() {
	p.old.KillAll()
	p.new.KillAll()
	_ = p.db.Close()
}

// run makes the old schema, and runs the phases under load.
func (p *play) run(ctx context.Context) (err error) {
	for c, to := range map[*crew]*string{p.old: &p.report.Old, p.new: &p.report.New} {
		text, err := c.Call(ctx, "version")
		if err != nil {
			return err
		}
		*to = strings.TrimSpace(text)
	}
	if _, err := p.old.Call(ctx, "migrate", "up"); err != nil {
		return err
	}
	if err := p.version(ctx, &p.report.Schemas[0]); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.load.run(writing) })
	g.Go(func() error { return p.load.watch(ctx) })
	g.Go(func() error {
		defer stop()
		if err := p.phases(ctx); err != nil {
			return err
		}
		stopWriting()
		return p.settled(ctx)
	})
	return g.Wait()
}

// phases runs all phases until one finds something wrong.
func (p *play) phases(ctx context.Context) error {
	for _, phase := range []struct {
		name string
		act  func(context.Context) error
	}{
		{"old workers on their schema", p.start(p.old, 2)},
		{"new migrates up, old workers run", p.migrate},
		{"old restarted on the new schema", p.replace(p.old, p.old)},
		{"old first, new joins", p.start(p.new, 2)},
		{"old stopped and killed", p.end(p.old)},
		{"new first, old joins", p.start(p.old, 2)},
		{"rolled back: new stopped and killed", p.end(p.new)},
		{"new replaces old, one by one", p.replace(p.old, p.new)},
		{"rolled back, one by one", p.replace(p.new, p.old)},
	} {
		if err := p.phase(ctx, phase.name, phase.act); err != nil || len(p.report.Wrong) > 0 {
			return err
		}
	}
	return nil
}

func (p *play) phase(ctx context.Context, name string, act func(context.Context) error) error {
	if err := act(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, c := range []*crew{p.old, p.new} {
		if c.running > 0 {
			if err := p.byHand(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if err := p.readEntries(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	enough := func(context.Context) (bool, error) { return p.load.rows() >= p.cfg.Rows, nil }
	if late, err := p.await(ctx, enough); late || err != nil {
		return errors.Join(err, fmt.Errorf("%s: fewer than %d rows in %s", name, p.cfg.Rows, p.cfg.Patience))
	}
	// Rows that commit from now on count for the next phase.
	ended := p.load.enter()
	if _, err := p.await(ctx, func(context.Context) (bool, error) {
		_, waiting := p.load.outcome(ended)
		return len(waiting) == 0, nil
	}); err != nil {
		return err
	}
	f, lost := p.load.outcome(ended)
	result := Phase{
		Name: name, Workers: fmt.Sprintf("%d old, %d new", p.old.running, p.new.running), Rows: f.rows, Lost: len(lost),
		Longest: f.longest, LongestOther: f.longestOther,
	}
	if len(lost) > 0 {
		p.wrong(name, fmt.Sprintf("lost, for example %q", lost[:min(5, len(lost))]))
	}
	var err error
	if result.Errors, err = p.calls(ctx, name); err != nil {
		return err
	}
	p.report.Phases = append(p.report.Phases, result)
	fmt.Fprintf(p.cfg.Progress, "upgrade: %s: %d rows, %d lost, %d errors, longest wait %s, of patterns and scheduled rows %s\n",
		name, result.Rows, result.Lost, result.Errors, result.Longest.Round(time.Millisecond), result.LongestOther.Round(time.Millisecond))
	return errors.Join(p.old.Alive(), p.new.Alive())
}

func (p *play) wrong(phase, text string) { p.report.Wrong = append(p.report.Wrong, phase+": "+text) }

// await waits for a condition, and reports whether patience ended first.
func (p *play) await(ctx context.Context, condition func(context.Context) (bool, error)) (late bool, err error) {
	for limit := time.Now().Add(p.cfg.Patience); ; {
		if ok, err := condition(ctx); ok || err != nil {
			return false, err
		}
		if time.Now().After(limit) {
			return true, nil
		}
		if err := sleep.For(ctx, glance); err != nil {
			return false, err
		}
	}
}

// start returns an action that starts workers and waits until each has settled a batch.
func (p *play) start(c *crew, n int) func(context.Context) error {
	return func(ctx context.Context) error {
		for range n {
			if err := c.Start(100); err != nil {
				return err
			}
			c.started++
			c.running++
		}
		for i := range n {
			name := fmt.Sprint(c.Prefix, c.started-i)
			late, err := p.await(ctx, func(ctx context.Context) (settled bool, err error) {
				if err := c.Alive(); err != nil {
					return false, err
				}
				err = p.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM cache_outbox_journal WHERE worker = ?)", name).Scan(&settled)
				return settled, err
			})
			if late {
				err = fmt.Errorf("worker %s settles nothing in %s:\n%s", name, p.cfg.Patience, c.Tails())
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// end returns an action that ends all workers: the first by SIGTERM, the next by SIGKILL, and so
// on.
func (p *play) end(c *crew) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := 0; c.running > 0; i++ {
			if err := p.leave(ctx, c, i); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p *play) leave(ctx context.Context, c *crew, i int) error {
	m, signal := c.Pick(0), syscall.SIGTERM
	if i%2 == 1 {
		signal = syscall.SIGKILL
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Patience)
	defer cancel()
	c.running--
	if err := m.Signal(ctx, signal, true); err != nil {
		return fmt.Errorf("end a worker: %w", err)
	}
	if code := m.ExitCode(); signal == syscall.SIGTERM && code != 0 {
		p.wrong("SIGTERM", fmt.Sprintf("a worker ended with exit code %d:\n%s", code, m.Tail()))
	}
	return nil
}

// replace returns an action that ends the workers of a crew one by one, and starts one of another
// in place of each.
func (p *play) replace(from, to *crew) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := range from.running {
			if err := p.leave(ctx, from, i); err != nil {
				return err
			}
			if err := p.start(to, 1)(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// migrate makes the schema of the new release. It must be newer than the schema of the old release.
func (p *play) migrate(ctx context.Context) error {
	if _, err := p.new.Call(ctx, "migrate", "up"); err != nil {
		return err
	}
	if err := p.version(ctx, &p.report.Schemas[1]); err != nil {
		return err
	}
	if p.report.Schemas[1] <= p.report.Schemas[0] {
		return fmt.Errorf("the new release has schema %d, which is not newer than %d of the old: nothing would be tested", p.report.Schemas[1], p.report.Schemas[0])
	}
	return nil
}

func (p *play) version(ctx context.Context, to *int) error {
	return p.db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM cache_outbox_version WHERE is_applied").Scan(to)
}

// byHand invalidates a key and a pattern with the program of a crew: rows of reserved entities,
// which workers of any release carry out.
func (p *play) byHand(ctx context.Context, c *crew) error {
	id := p.load.next()
	key, page := fmt.Sprint("upgrade:hand:", id), fmt.Sprintf("upgrade:hand:%d:page", id)
	for _, name := range []string{key, page} {
		if err := p.cache.Set(ctx, name, "old", keyLife).Err(); err != nil {
			return err
		}
	}
	if _, err := c.Call(ctx, "invalidate", "--key", key); err != nil {
		return err
	}
	p.load.note(key, time.Now(), false)
	if _, err := c.Call(ctx, "invalidate", "--pattern", key+":*"); err != nil {
		return err
	}
	p.load.note(page, time.Now(), true)
	return nil
}

// readEntries has readers of each release read what the other stored, in both formats, and then
// invalidates the entries.
func (p *play) readEntries(ctx context.Context) error {
	for writer, reader := range map[*crew]*crew{p.old: p.new, p.new: p.old} {
		for _, format := range [][]string{nil, {"raw"}} {
			p.entries++
			id := fmt.Sprint("entry", p.entries)
			key := "upgrade:thing:" + id
			for _, want := range []struct {
				by          *crew
				value, said string
			}{{writer, "first", "loaded first"}, {reader, "second", "found first"}} {
				if err := p.read(ctx, want.by, want.said, append([]string{p.url, key, want.value}, format...)); err != nil {
					return err
				}
			}
			if _, err := p.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', ?)", id); err != nil {
				return err
			}
			p.load.note(key, time.Now(), false)
		}
	}
	return nil
}

// read calls a reader, which must print said.
func (p *play) read(ctx context.Context, c *crew, said string, args []string) error {
	out, err := exec.CommandContext(ctx, c.Reader, args...).Output()
	if err != nil {
		return fmt.Errorf("read an entry: %w", err)
	}
	if got := strings.TrimSpace(string(out)); got != said {
		p.wrong("entries", fmt.Sprintf("%s %s printed %q, must be %q", c.Reader, strings.Join(args[1:], " "), got, said))
	}
	return nil
}

// calls counts what an operator would be called about:
//   - lines of the level ERROR in the workers' logs
//   - reports of workers that Redis has lost data
//   - dead letters
//   - a status that is not good within patience
func (p *play) calls(ctx context.Context, phase string) (n int, err error) {
	for _, c := range []*crew{p.old, p.new} {
		lines := append(c.Lines(`"level":"ERROR"`), c.Lines("redis has everything again")...)
		for _, line := range lines[min(c.reported, len(lines)):] {
			n++
			p.wrong(phase, line)
		}
		c.reported = len(lines)
		last := ""
		late, err := p.await(ctx, func(ctx context.Context) (bool, error) {
			text, err := c.Call(ctx, "status")
			last = text
			return err == nil, ctx.Err()
		})
		if err != nil {
			return n, err
		}
		if late {
			n++
			p.wrong(phase, "status: "+last)
		}
	}
	var dead int
	if err := p.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox_dead").Scan(&dead); err != nil {
		return n, err
	}
	if dead > 0 {
		n++
		p.wrong(phase, fmt.Sprintf("%d dead letters", dead))
	}
	return n, nil
}

// settled waits until no row is left, and checks that keys stay whose rows rolled back.
func (p *play) settled(ctx context.Context) error {
	var left int
	late, err := p.await(ctx, func(ctx context.Context) (bool, error) {
		err := p.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM cache_outbox) + (SELECT COUNT(*) FROM cache_outbox_delayed) + (SELECT COUNT(*) FROM cache_outbox_sweeps)").Scan(&left)
		return left == 0, err
	})
	if err != nil {
		return err
	}
	if late {
		p.wrong("the end", fmt.Sprintf("%d rows are left", left))
	}
	kept := p.load.rolledBack()
	there, err := p.cache.Exists(ctx, kept...).Result()
	if err == nil && int(there) != len(kept) {
		p.wrong("the end", fmt.Sprintf("%d transactions rolled back, and %d of their keys exist", len(kept), there))
	}
	return err
}
