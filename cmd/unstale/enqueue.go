package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/outbox"
)

// enqueueCommand is "unstale enqueue".
type enqueueCommand struct {
	mysql  mysqlFlags
	pairs  *[]string
	at     string
	trace  string
	dryRun bool
}

func newEnqueue(p process) *cobra.Command {
	e := &enqueueCommand{}
	cmd := &cobra.Command{
		Use:   "enqueue ENTITY ID",
		Short: "Insert one invalidation row",
		Example: `  unstale enqueue product 42 --param category_id=7 --param category_id=9
  unstale enqueue coupon SUMMER --at +10m
  unstale enqueue coupon -- -10%      # an id that begins with a dash
  unstale enqueue price_rule 3 --at 2027-01-01T00:00:00Z`,
		Args: exactArgs("ENTITY", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), p, args[0], args[1]) },
	}
	flags := cmd.Flags()
	e.pairs = addParams(flags)
	e.mysql.add(flags)
	flags.StringVar(&e.at, "at", "", "not before this: RFC 3339, or +10m from now")
	flags.StringVar(&e.trace, "trace", "", "free text for the journal")
	flags.BoolVar(&e.dryRun, "dry-run", false, "check everything, write nothing")
	showEnv(flags, "param", "at", "trace", "dry-run")
	return cmd
}

func (e *enqueueCommand) run(ctx context.Context, p process, entity, id string) error {
	params, err := parseParams(*e.pairs)
	if err != nil {
		return err
	}
	inv := outbox.Invalidation{Entity: entity, ID: id, Trace: e.trace}
	if inv.RawParams, err = paramsJSON(params); err != nil {
		return fmt.Errorf("write parameters: %w", err)
	}
	if inv.NotBefore, err = parseAt(e.at, time.Now()); err != nil {
		return err
	}
	if err := inv.Validate(); err != nil {
		return err
	}
	when := ""
	if !inv.NotBefore.IsZero() {
		when = " for " + inv.NotBefore.UTC().Format(time.RFC3339)
	}
	if e.dryRun {
		fmt.Fprintf(p.Out, "would enqueue %s %s%s %s\n", printable(entity), printable(id), when, inv.RawParams)
		return nil
	}
	db, err := e.mysql.open("enqueue")
	if err != nil {
		return err
	}
	err = outbox.InTx(ctx, db.DB(), func(tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, inv) })
	if err = errors.Join(orSchema(ctx, db, err), db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "enqueued %s %s%s\n", printable(entity), printable(id), when)
	return nil
}

// parseAt reads --at: empty, RFC 3339, or a duration from now with a plus sign.
func parseAt(at string, now time.Time) (time.Time, error) {
	if at == "" {
		return time.Time{}, nil
	}
	if rest, ok := strings.CutPrefix(at, "+"); ok {
		if d, err := time.ParseDuration(rest); err == nil && d >= 0 {
			return now.Add(d), nil
		}
	} else if t, err := time.Parse(time.RFC3339, at); err == nil {
		return t, nil
	}
	return time.Time{}, usageError{fmt.Errorf("--at %q: must be a time, for example 2027-01-31T08:00:00Z or +10m", at)}
}
