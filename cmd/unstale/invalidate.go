package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
)

// invalidateCommand is "unstale invalidate".
type invalidateCommand struct {
	explainCommand // what the row expands to
	redis          redisFlags
	key, pattern   string
	everything     bool
	dryRun         bool
	wait           time.Duration
}

func newInvalidate(p process) *cobra.Command {
	c := &invalidateCommand{}
	cmd := &cobra.Command{
		Use:   "invalidate",
		Short: "Unlink what a row, key or pattern names",
		Long: `Insert a row, which workers process like any other, and record it in the audit. Choose one:
--entity with --id, or --key or --pattern for keys that no entity of the map reaches. A key is
literal. In a pattern, only * and ? are special; a backslash takes the meaning from the character
after it. Workers scan all names in Redis for a pattern.

With --dry-run the command inserts nothing, runs the lookups of the map, and asks Redis how many
keys exist.

Exit codes:
  0  done; with --wait, the keys are gone
  1  refused, failed, or the row became a dead letter
  2  wrong usage
  3  the row still waits after --wait`,
		Example: `  unstale invalidate --entity product --id 42 --param category_id=7 --dry-run
  unstale invalidate --key shop:prod:home --wait 10s
  unstale invalidate --pattern 'shop:prod:list:*'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "entity", "id", "key", "pattern", "wait", "lookup-timeout"); err != nil {
				return err
			}
			return c.invalidateRow(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.mapFile, "map", defaultMap, "the map's file")
	flags.StringVar(&c.entity, "entity", "", "the row's entity; needs --id")
	flags.StringVar(&c.id, "id", "", "the row's id")
	c.pairs = addParams(flags)
	flags.StringVar(&c.key, "key", "", "one key, literally")
	flags.StringVar(&c.pattern, "pattern", "", "all keys that match")
	flags.BoolVar(&c.everything, "everything", false, "allow a --pattern that matches all keys of the map, or has a short prefix")
	flags.BoolVar(&c.dryRun, "dry-run", false, "show what would be unlinked, insert nothing")
	flags.BoolVar(&c.json, "json", false, "print one JSON object")
	flags.DurationVar(&c.wait, "wait", 0, "time to wait until the keys are gone (default: do not wait)")
	c.mysql.addMySQLFlags(flags)
	c.mysql.addLookups(flags)
	c.redis.addRedisFlags(flags)
	return cmd
}

// maxNamed is how many characters a row's ID has at most.
const maxNamed = 255

// row returns the row that the flags choose.
func (c *invalidateCommand) row() (row invalidation.Row, err error) {
	switch chosen := slices.DeleteFunc([]string{c.entity, c.key, c.pattern}, isEmpty); {
	case len(chosen) != 1:
		return row, usageError{errors.New("what is stale? give one of --entity with --id, --key, and --pattern")}
	case (c.entity == "") != (c.id == ""):
		return row, usageError{errors.New("--entity and --id go together")}
	case c.entity == "" && len(*c.pairs) > 0:
		return row, usageError{errors.New("--param is of a row of --entity")}
	case c.everything && c.pattern == "":
		return row, usageError{errors.New("--everything is of a --pattern")}
	case c.wait < 0:
		return row, usageError{fmt.Errorf("--wait %s: must be a positive duration, for example 10s", c.wait)}
	case c.wait > 0 && c.dryRun:
		return row, usageError{errors.New("--wait and --dry-run exclude each other")}
	}
	if row.Params, err = parseParams(*c.pairs); err != nil {
		return row, err
	}
	row.Entity, row.ID = c.entity, c.id
	switch {
	case c.key != "":
		row.Entity, row.ID = invalidation.KeyEntity, c.key
	case c.pattern != "":
		row.Entity, row.ID = invalidation.PatternEntity, c.pattern
		if c.everything {
			row.Params = invalidation.Params{{Name: invalidation.EverythingParam, Values: []string{"true"}}}
		}
	}
	return row, nil
}

// An invalidated is the JSON of invalidate.
type invalidated struct {
	*explanation
	DryRun bool `json:"dry_run"`
	// of a dry run: how many of the keys and sets exist, and how many keys the patterns match
	Exist   *int64 `json:"exist,omitempty"`
	Matched *int64 `json:"matched,omitempty"`
	// the row was processed within --wait
	Settled bool `json:"settled"`
}

func (c *invalidateCommand) invalidateRow(ctx context.Context, p process) error {
	row, err := c.row()
	if err != nil {
		return err
	}
	inv := outbox.Invalidation{Entity: row.Entity, ID: row.ID}
	if inv.RawParams, err = paramsJSON(row.Params); err != nil {
		return fmt.Errorf("write parameters: %w", err)
	}
	if err := inv.Validate(); err != nil {
		if n := utf8.RuneCountInString(row.ID); c.entity == "" && n > maxNamed {
			err = usageError{fmt.Errorf("--key and --pattern have at most %d characters, not %d; give a --pattern that ends earlier, with *", maxNamed, n)}
		}
		return err
	}
	m, err := loadMap(p, c.mapFile)
	if err != nil {
		return mapError(err)
	}
	// workers run the lookups: the account need not have the privilege
	expand := func() (invalidation.Plan, error) { return m.ExpandWithoutLookups(row) }
	if c.dryRun || invalidation.IsReserved(row.Entity) {
		expand = func() (invalidation.Plan, error) { return c.expand(ctx, m, row) }
	}
	plan, err := expand()
	if err != nil {
		return fmt.Errorf("nothing was done: the map refuses this row: %w", err)
	}
	if strings.ContainsAny(c.key, "*?") {
		fmt.Fprintln(p.Err, "unstale: --key names one key, whose name contains * or ?; --pattern means all keys that match")
	}
	out := &invalidated{explanation: explain(m, row, plan), DryRun: c.dryRun}
	if c.dryRun {
		if err := c.countKeys(ctx, plan, out); err != nil {
			return err
		}
		return c.printOutcome(p, out, nil)
	}
	for _, name := range out.Ignored {
		fmt.Fprintf(p.Err, "unstale: ignored: %s\n", undeclared(name, out.described))
	}
	db, err := c.mysql.open("invalidate")
	if err != nil {
		return err
	}
	token, err := store.NewActions(db).Invalidate(ctx, inv)
	if err == nil && c.wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, c.wait)
		defer cancel()
		err = outbox.Wait(waiting, db.DB(), token)
		out.Settled = err == nil
		if err != nil && ctx.Err() == nil && waiting.Err() != nil {
			err = answer{exitStale, fmt.Sprintf("the row still waits after %s; `unstale status` shows why", c.wait)}
		}
	}
	if err = errors.Join(orSchema(ctx, db, err), db.Close()); err != nil && token.IsZero() {
		return err
	}
	return c.printOutcome(p, out, err)
}

// countKeys asks Redis which names of a plan there are.
func (c *invalidateCommand) countKeys(ctx context.Context, plan invalidation.Plan, out *invalidated) error {
	out.Exist, out.Matched = new(int64), new(int64)
	return c.redis.onKeyspace(func(redis *keyspace.Keyspace) error {
		for _, key := range slices.Concat(plan.Keys, plan.Sets) {
			found, err := redis.Contents.Present(ctx, key)
			if err != nil {
				return err
			}
			if found.Exists {
				*out.Exist++
			}
		}
		if len(plan.Patterns) == 0 {
			return nil
		}
		e, err := redis.Contents.Estimate(ctx, plan.Patterns, math.MaxInt32) // all of them
		for _, n := range e.Matched {
			*out.Matched += n
		}
		return err
	})
}

// printOutcome prints what was done, even if waiting for it failed.
func (c *invalidateCommand) printOutcome(p process, out *invalidated, err error) error {
	if c.json {
		return errors.Join(err, output.JSON(p.Out, out))
	}
	switch {
	case c.dryRun:
		out.print(p)
		fmt.Fprintf(p.Out, "would unlink %s of the %d that it names, and %s that patterns match\n",
			output.Things(*out.Exist, "key"), len(out.Keys)+len(out.Sets), output.Things(*out.Matched, "key"))
	case out.Settled:
		fmt.Fprintf(p.Out, "invalidated %s %s: its keys are gone\n", printable(out.Entity), printable(out.ID))
	default:
		fmt.Fprintf(p.Out, "inserted %s %s; workers process it\n", printable(out.Entity), printable(out.ID))
	}
	return err
}
