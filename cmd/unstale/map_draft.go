package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/draft"
	"github.com/unstale/unstale/internal/output"
)

// draftCommand is "unstale map draft".
type draftCommand struct {
	db     mysqlFlags
	tables []string
	app    string
	out    string
	force  bool
	json   bool
}

func newMapDraft(p process) *cobra.Command {
	c := &draftCommand{}
	cmd := &cobra.Command{
		Use:   "draft",
		Short: "Draft a map from the tables of a database",
		Long: `Draft a map from the tables of a database, for you to edit. The draft has an entity and a capture per
table. A row that is a part of another one makes that one's keys stale, too: by a foreign key with
ON DELETE CASCADE or in the primary key, or by the name of a column. The command reads the
dictionary of the server and changes nothing. "unstale map check" and "unstale capture apply"
accept the draft: captures that the database refuses are left out, with the reason in a comment.

The summary on standard error lists the tables that are not captured, or not completely.`,
		Example: `  unstale map draft --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop' -o mapping.yaml
  unstale map draft --tables 'product*,!product_log' --app shop`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.draftMap(cmd.Context(), p) },
	}
	flags := cmd.Flags()
	c.db.addMySQLFlags(flags)
	flags.StringSliceVar(&c.tables, "tables", nil, "tables to draft, with * and ?; after a !, to leave out (default: all)")
	flags.StringVar(&c.app, "app", "", "text that all keys begin with (default: the name of the database)")
	flags.StringVarP(&c.out, "output", "o", "", "file to write; without it, standard output")
	flags.BoolVar(&c.force, "force", false, "overwrite the file")
	flags.BoolVar(&c.json, "json", false, "print one JSON object")
	return cmd
}

func (c *draftCommand) draftMap(ctx context.Context, p process) error {
	if c.out != "" && !c.force {
		if _, err := os.Lstat(c.out); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, usageError{fmt.Errorf("%s exists; give another file, or --force to overwrite it", c.out)})
		}
	}
	d, err := c.read(ctx)
	if err != nil {
		return err
	}
	if c.out != "" {
		if err := os.MkdirAll(filepath.Dir(c.out), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(c.out, d.Text, 0o644); err != nil {
			return err
		}
	}
	switch {
	case c.json:
		return output.JSON(p.Out, draftOf(d))
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

// read reads the database.
func (c *draftCommand) read(ctx context.Context) (d *draft.Draft, err error) {
	config, err := c.db.config()
	if err != nil {
		return nil, err
	}
	s, err := c.db.open("map")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return draft.Read(ctx, s.SchemaDB(), draft.Options{Tables: c.tables, App: cmp.Or(c.app, config.DBName)})
}

// A draftObject is the JSON of draft. The lists are never null.
type draftObject struct {
	Map    string              `json:"map"`
	Tables []draft.TableReport `json:"tables"`
}

func draftOf(d *draft.Draft) draftObject {
	return draftObject{string(d.Text), d.Tables}
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
	for _, t := range d.Tables {
		switch {
		case !t.Captured:
			fmt.Fprintf(p.Err, "not captured: %s: %s\n", printable(t.Table), printable(t.Reason))
		case t.Reason != "":
			fmt.Fprintf(p.Err, "not complete: %s: %s\n", printable(t.Table), printable(t.Reason))
		}
	}
	_ = strings.TrimSpace
}
