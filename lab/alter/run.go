package alter

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

const (
	patience = 2 * time.Minute // for a step
	around   = 200             // writes before and after a recipe
	shopMap  = `version: 1
lease: 1s # the shortest time until a sweep is settled
entities:
  product: { keys: ["shop:product:{id}"] }
  coupon: { keys: ["shop:coupon:{id}"] }
capture:
  products: { entity: product, id: id }
  coupons: { entity: coupon, id: id, on: [update] }
`
	fillAll = "INSERT INTO products WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199) " +
		"SELECT 1 + a.i + 200 * b.i, 1, REPEAT('x', 100) FROM n AS a, n AS b" // as many as rows
)

// A Config sets what to run. The zero value of a field means its default.
type Config struct {
	// Binary is the program under test. Required.
	Binary string
	// Flavor of the database; empty: MySQL.
	Flavor servers.Kind
	// Recipes to run: see Find. Required.
	Recipes []Recipe
	// Progress takes a line per step. Nil: none.
	Progress io.Writer
}

// A Result is what a recipe did.
type Result struct {
	Recipe  string        `json:"recipe"`
	Writes  int64         `json:"writes"` // during the steps
	Again   int64         `json:"again"`  // repeated after an expected error
	Keys    int           `json:"keys"`   // checked
	Before  int           `json:"before"` // stale before the invalidation; -1: the recipe has none
	Stale   int           `json:"stale"`  // at the end
	Longest time.Duration `json:"longest"`
	Wrong   string        `json:"wrong,omitempty"`
}

// A Report is the results of a run.
type Report struct {
	Servers string   `json:"servers"`
	Results []Result `json:"results"`
}

// Wrong returns how many recipes failed.
func (r *Report) Wrong() (n int) {
	for _, result := range r.Results {
		if result.Wrong != "" {
			n++
		}
	}
	return n
}

// String returns a table.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Servers)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "recipe\twrites\trepeated\tkeys checked\tstale before the invalidation\tstale\tlongest wait\t")
	for _, o := range r.Results {
		before := "-"
		if o.Before >= 0 {
			before = fmt.Sprint(o.Before)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%d\t%s\t%s\n", o.Recipe, o.Writes, o.Again, o.Keys, before, o.Stale, o.Longest.Round(time.Millisecond), o.Wrong)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// Run runs recipes one after the other, each with a new database. The error is the reason for a
// missing result; what a check found is in the report.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	args := append([]string{"--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--log-bin-trust-function-creators=1"}, rig.MySQLArgs...)
	server, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: args})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	node, err := rig.StartNode(ctx, rig.NodeOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	link, err := servers.NewLink("tools", server.Addr())
	if err != nil {
		return nil, err
	}
	defer link.Close()
	report = &Report{Servers: fmt.Sprintf("%s %s and Redis %s", server.Flavor(), servers.ShortVersion(server.Version()), node.Server.Version())}
	for _, r := range cfg.Recipes {
		fmt.Fprintf(cfg.Progress, "alter: %s\n", r.Name)
		s := &stage{cfg: cfg, Recipe: r, server: server, node: node, link: link}
		result, err := s.run(ctx)
		result.Recipe = r.Name
		if err != nil {
			result.Wrong = err.Error()
		}
		report.Results = append(report.Results, result)
		link.Calm(ctx)
	}
	return report, ctx.Err()
}

// A stage is the state of one recipe.
type stage struct {
	Recipe
	cfg    Config
	server *servers.MySQL
	node   *rig.Node
	link   *servers.Link
	load   *load
	fleet  *rig.Fleet
	dir    string
	env    []string // of commands
}

func (s *stage) run(ctx context.Context) (result Result, err error) {
	result.Before = -1
	if s.dir, err = os.MkdirTemp("", "unstale-alter-"); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if err := s.open(ctx); err != nil {
		return result, err
	}
	defer s.load.db.Close()
	defer s.fleet.KillAll()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(ctx)
	g.Go(func() error { return s.load.run(writing) })
	g.Go(func() error {
		defer stop()
		if err := s.load.more(working, around); err != nil {
			return err
		}
		begin := s.load.count.Load()
		for _, table := range []string{"products", "coupons"} {
			if err := s.change(working, table, &result); err != nil {
				return err
			}
		}
		result.Writes = s.load.count.Load() - begin
		return s.load.more(working, around)
	})
	if err := g.Wait(); err != nil {
		return result, err
	}
	return result, s.check(ctx, &result)
}

// change runs the steps for a table.
func (s *stage) change(ctx context.Context, table string, result *Result) error {
	if s.Fills {
		_, err := s.load.stale(ctx) // rows of the steps before must not unlink these keys
		if err = errors.Join(err, s.load.fill(ctx, table)); err != nil {
			return err
		}
	}
	for _, step := range s.Steps {
		if step == invalidate {
			n, err := s.load.stale(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.cfg.Progress, "alter: %s: %d keys are stale\n", table, n)
			result.Before = max(result.Before, 0) + n
		}
		if err := s.step(ctx, table, step); err != nil {
			return err
		}
	}
	return nil
}

// check counts stale keys, and compares the triggers with the map.
func (s *stage) check(ctx context.Context, result *Result) (err error) {
	result.Again, result.Keys, result.Longest = s.load.again.Load(), len(s.load.keys), s.load.longest
	if result.Stale, err = s.load.stale(ctx); err != nil {
		return err
	}
	least, dead := int64(50), 0
	if s.Blocks {
		least = writers
	}
	if err := s.load.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox_dead").Scan(&dead); err != nil {
		return err
	}
	var errs []error
	for text, wrong := range map[string]bool{
		"stale keys":              result.Stale > 0,
		"the check finds no loss": s.Misses && result.Before < 1,
		"too few writes":          result.Writes < least,
		"dead letters":            dead > 0,
	} {
		if wrong {
			errs = append(errs, errors.New(text))
		}
	}
	_, err = s.fleet.Call(ctx, "capture", "diff")
	return errors.Join(append(errs, err, s.fleet.Alive())...)
}

// open makes the database, its triggers and a worker.
func (s *stage) open(ctx context.Context) (err error) {
	if err := s.node.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := rig.Prepare(ctx, s.server, "DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop"); err != nil {
		return err
	}
	db, err := sql.Open("mysql", rig.DSN(s.server, "shop"))
	if err != nil {
		return err
	}
	db.SetMaxIdleConns(writers)
	s.load = &load{db: db, cache: s.node.Client, errors: s.Errors}
	if s.server.Flavor() == servers.KindMariaDB {
		s.load.errors = append(s.load.errors, 1146) // MDEV-26048
	}
	env := []string{"MYSQL_DSN=" + s.server.DSN("shop"), "REDIS_URL=" + s.node.Server.URL(), "UNSTALE_DEFINER=unstale_capture@localhost"}
	if s.fleet, err = rig.New(s.cfg.Binary, s.dir, shopMap, env); err != nil {
		return err
	}
	if err := s.tools(ctx, env); err != nil {
		return err
	}
	if _, err := s.fleet.Call(ctx, "migrate", "up"); err != nil {
		return err
	}
	for _, statement := range []string{
		"CREATE TABLE products (id INT PRIMARY KEY, price INT NOT NULL, text VARCHAR(200) NOT NULL DEFAULT '')", fillAll,
		"CREATE TABLE coupons LIKE products", "INSERT INTO coupons SELECT * FROM products",
		"CREATE USER IF NOT EXISTS unstale_capture@localhost ACCOUNT LOCK",
		"GRANT INSERT (entity, entity_id, params) ON cache_outbox TO unstale_capture@localhost",
		"GRANT SELECT, TRIGGER ON products TO unstale_capture@localhost",
		"GRANT SELECT, TRIGGER ON coupons TO unstale_capture@localhost",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if _, err := s.fleet.Call(ctx, "capture", "apply"); err != nil {
		return err
	}
	for _, table := range []string{"products", "coupons"} {
		for _, step := range s.Before {
			if err := s.step(ctx, table, step); err != nil {
				return err
			}
		}
	}
	return s.fleet.Start(1000)
}

// tools sets the environment of commands: clients of the database find it through a file in HOME.
func (s *stage) tools(ctx context.Context, env []string) error {
	folder, ok := servers.Folder()
	if !ok {
		return errors.New("find the tools: run scripts/servers schema-tools in the checkout")
	}
	binary, err := filepath.Abs(s.cfg.Binary)
	if err != nil {
		return err
	}
	if err := os.Symlink(binary, filepath.Join(s.dir, "unstale")); err != nil {
		return err
	}
	tree := s.Tree
	if tree == "" {
		tree = map[servers.Kind]string{servers.KindMySQL: "tools-sid", servers.KindMariaDB: "tools-12"}[s.server.Flavor()]
	}
	address := s.server.Addr() // gh-ost refuses a proxy
	if s.Latency > 0 {
		address = s.link.Addr()
		if err := s.link.SlowRequests(int(s.Latency.Milliseconds())); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	path := strings.Join([]string{s.dir, filepath.Join(folder, tree, "commands"), filepath.Join(folder, "gh-ost"), os.Getenv("PATH")}, ":")
	s.env = append([]string{"HOST=" + host, "PORT=" + port, "CHANGE=" + change, "HOME=" + s.dir, "PATH=" + path, "UNSTALE_MAP=" + filepath.Join(s.dir, "map.yaml")}, env...)
	return os.WriteFile(filepath.Join(s.dir, ".my.cnf"), fmt.Appendf(nil, "[client]\nuser=root\nhost=%s\nport=%s\n", host, port), 0o600)
}

// step runs one step for a table.
func (s *stage) step(ctx context.Context, table, step string) error {
	step = strings.NewReplacer("products", table, "product:", table[:len(table)-1]+":").Replace(step)
	began := time.Now()
	defer func() {
		fmt.Fprintf(s.cfg.Progress, "alter: %s: %s\n", step, time.Since(began).Round(time.Millisecond))
	}()
	if strings.HasSuffix(step, ";") {
		if _, err := s.load.db.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+step)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", step, err, bytes.TrimSpace(out[max(0, len(out)-3000):]))
	}
	return nil
}
