package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/draft"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
)

// draftCommand is "unstale map draft".
type draftCommand struct {
	db     mysqlFlags
	tables []string
	app    string
	out    string
	keys   string
	most   int64
	redis  redisFlags
	diff   string
	force  bool
	json   bool
}

func newMapDraft(p process) *cobra.Command {
	c := &draftCommand{}
	cmd := &cobra.Command{
		Use:   "draft",
		Short: "Draft a map from the tables of a database",
		Long: `Draft a map from the tables of a database, for you to edit. The draft has an entity and a capture per
table. A row that is a part of another one makes that one's keys stale, too: if the table's name
contains the other's, or else by a foreign key with ON DELETE CASCADE or in the primary key. The
command reads the dictionary of the server and changes nothing. "unstale map check" and "unstale
capture apply" accept the draft: captures that the database refuses are left out, with the reason in
a comment.

With --keys or --redis-url, the draft also has the families of keys in use, such as
shop:product:<number>, and proposes the entity that reaches each. All else could be personal data,
so it is replaced, except words of the tables, --app, and words that are common in keys.

The summary on standard error lists the tables that are not captured, or not completely.

With --diff, the command prints what an existing map lacks: new tables, columns and foreign keys,
and what the tables lack. A comment of the map can leave a table or a column out, as in a draft.

Exit codes:
  0  the draft is written, or with --diff, the map has everything
  1  an error, or with --diff, a difference
  2  wrong usage`,
		Example: `  unstale map draft --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop' -o mapping.yaml
  unstale map draft --tables 'product*,!product_log' --app shop --redis-url redis://cache:6379/0
  redis-cli --scan | unstale map draft --keys - -o mapping.yaml
  unstale map draft --diff mapping.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.draftMap(cmd.Context(), p) },
	}
	flags := cmd.Flags()
	c.db.addMySQLFlags(flags)
	flags.StringSliceVar(&c.tables, "tables", nil, "tables to draft, with * and ?; after a !, to leave out (default: all)")
	flags.StringVar(&c.app, "app", "", "text that all keys begin with (default: the name of the database)")
	flags.StringVarP(&c.out, "output", "o", "", "file to write; without it, standard output")
	flags.StringVar(&c.keys, "keys", "", "file with names of keys in use, one per line; - is standard input")
	flags.Int64Var(&c.most, "max-keys", 100_000, "how many keys to look at")
	c.redis.addRedisFlags(flags)
	withoutEnv(flags, "redis-url") // a draft uses Redis only if the call requests it
	flags.StringVar(&c.diff, "diff", "", "existing map to compare the tables with; nothing is written")
	withoutEnv(flags, "diff")
	flags.BoolVar(&c.force, "force", false, "overwrite the file")
	flags.BoolVar(&c.json, "json", false, "print one JSON object")
	return cmd
}

func (c *draftCommand) draftMap(ctx context.Context, p process) error {
	if c.diff != "" && c.out != "" {
		return usageError{errors.New("--diff and -o; give one of them")}
	}
	if c.out != "" && !c.force {
		switch _, err := os.Lstat(c.out); {
		case err == nil:
			return c.exists()
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if strings.Contains(c.app, "${") {
		return usageError{fmt.Errorf("--app %q: a map would replace ${...} by an environment variable; give other text", c.app)}
	}
	d, err := c.read(ctx, p)
	if err != nil {
		return err
	}
	if c.diff != "" {
		return c.compare(p, d)
	}
	if c.out != "" {
		if err := c.write(d.Text); err != nil {
			return err
		}
	}
	switch {
	case c.json:
		return output.JSON(p.Out, draftObject{string(d.Text), d.Tables, append([]draft.Family{}, d.Families...)})
	case c.out == "":
		if _, err := p.Out.Write(d.Text); err != nil {
			return err
		}
	default:
		fmt.Fprintf(p.Out, "wrote %s\n", c.out)
	}
	printDraft(p, d)
	return nil
}

func (c *draftCommand) exists() error {
	return usageError{fmt.Errorf("%s exists; give another file, or --force to overwrite it", c.out)}
}

// write writes the file. It replaces an existing one as a whole, since a worker may read it.
func (c *draftCommand) write(text []byte) (err error) {
	folder, name := filepath.Split(c.out)
	if err := os.MkdirAll(filepath.Clean(folder), 0o755); err != nil {
		return err
	}
	var f *os.File
	if c.force {
		f, err = os.CreateTemp(filepath.Clean(folder), name+".*")
	} else if f, err = os.OpenFile(c.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); errors.Is(err, fs.ErrExist) {
		return c.exists()
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil && c.force {
		err = os.Rename(f.Name(), c.out)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err has the cause
	}
	return err
}

// compare prints the differences from an existing map.
func (c *draftCommand) compare(p process, d *draft.Draft) error {
	src, err := invalidation.ReadFile(c.diff)
	if err != nil {
		return err
	}
	m, err := invalidation.Parse(c.diff, src, p.Env)
	if err != nil {
		return err
	}
	all := d.Diff(m, src)
	if c.json {
		err = output.JSON(p.Out, struct {
			Differences []draft.Difference `json:"differences"`
		}{append([]draft.Difference{}, all...)})
	} else {
		w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
		for _, one := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", one.State, printable(one.Table), printable(one.Column), one.Text)
		}
		err = w.Flush()
	}
	if len(all) > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %s from the tables", c.diff, output.Things(len(all), "difference")))
	}
	return err
}

// read reads the keys in use and the database.
func (c *draftCommand) read(ctx context.Context, p process) (d *draft.Draft, err error) {
	config, err := c.db.config()
	if err != nil {
		return nil, err
	}
	keys, total, err := c.readKeys(ctx)
	if err != nil {
		return nil, err
	}
	if total > int64(len(keys)) {
		fmt.Fprintf(p.Err, "looked at %d of %s; --max-keys looks at more\n", len(keys), output.Things(total, "key"))
	}
	err = c.db.inSessions("map", func(s *session.Sessions) error {
		d, err = draft.Read(ctx, s.SchemaDB(), draft.Options{Tables: c.tables, App: cmp.Or(c.app, config.DBName), Keys: keys})
		return err
	})
	return d, err
}

// readKeys returns names of keys in use, or nil, and how many there are.
func (c *draftCommand) readKeys(ctx context.Context) (keys []string, total int64, err error) {
	switch {
	case c.most < 1:
		return nil, 0, usageError{fmt.Errorf("--max-keys %d: must be 1 or more", c.most)}
	case c.keys != "" && c.redis.url.text != "":
		return nil, 0, usageError{errors.New("--keys and --redis-url; give one of them")}
	case c.redis.url.text != "":
		keyspace.SetClientLog(nil)
		keys = []string{}
		err = c.redis.onKeyspace(func(k *keyspace.Keyspace) error {
			total, err = k.Contents.Sample(ctx, c.most, func(names []string) { keys = append(keys, names...) })
			return err
		})
		return keys[:min(c.most, int64(len(keys)))], total, err
	case c.keys == "":
		return nil, 0, nil
	}
	var from io.Reader = os.Stdin
	if c.keys != "-" {
		file, err := os.Open(c.keys)
		if err != nil {
			return nil, 0, err
		}
		defer file.Close()
		from = file
	}
	keys = []string{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && ctx.Err() == nil {
		if total++; total <= c.most {
			keys = append(keys, strings.TrimSuffix(lines.Text(), "\r"))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("--keys %s, line %d: %w", c.keys, total+1, err)
	}
	return keys, total, ctx.Err()
}

// A draftObject is the JSON of draft. The lists are never null.
type draftObject struct {
	Map      string              `json:"map"`
	Tables   []draft.TableReport `json:"tables"`
	Families []draft.Family      `json:"families"`
}

// printDraft prints the summary.
func printDraft(p process, d *draft.Draft) {
	entities, captured := 0, 0
	for _, t := range d.Tables {
		if t.Entity != "" {
			entities++
		}
		if t.Captured {
			captured++
		}
	}
	fmt.Fprintf(p.Err, "%s: %s, %d captured\n", output.Things(len(d.Tables), "table"), output.Things(entities, "entity", "entities"), captured)
	for _, line := range reasons(d.Tables) {
		fmt.Fprintln(p.Err, line)
	}
	for _, f := range d.Families {
		if f.Entity == "" {
			fmt.Fprintf(p.Err, "no table explains: %s (%s)\n", f.Family, output.Things(f.Keys, "key"))
		} else {
			fmt.Fprintf(p.Err, "%s reaches: %s (%s)\n", f.Entity, f.Family, output.Things(f.Keys, "key"))
		}
	}
}

// reasons returns a line for each reason why tables are not captured, or not completely.
func reasons(tables []draft.TableReport) (lines []string) {
	names := map[[2]string][]string{}
	var order [][2]string
	for _, t := range tables {
		why := [2]string{"not complete", printable(t.Reason)}
		switch {
		case !t.Captured:
			why[0] = "not captured"
		case t.Reason == "":
			continue
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], printable(t.Table))
	}
	for _, why := range order {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", why[0], strings.Join(names[why], ", "), why[1]))
	}
	return lines
}
