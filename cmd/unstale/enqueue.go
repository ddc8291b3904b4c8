package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/outbox"
)

// enqueueCommand is "unstale enqueue".
type enqueueCommand struct {
	mysql  mysqlFlags
	pairs  *[]string
	at     string
	trace  string
	dryRun bool
	json   bool
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
		RunE: func(cmd *cobra.Command, args []string) error { return e.enqueueRow(cmd.Context(), p, args[0], args[1]) },
	}
	flags := cmd.Flags()
	e.pairs = addParams(flags)
	e.mysql.addMySQLFlags(flags)
	flags.StringVar(&e.at, "at", "", "not before this: RFC 3339, or +10m from now")
	flags.StringVar(&e.trace, "trace", "", "free text for the journal")
	flags.BoolVar(&e.dryRun, "dry-run", false, "check everything, write nothing")
	flags.BoolVar(&e.json, "json", false, "print one JSON object")
	return cmd
}

func (e *enqueueCommand) enqueueRow(ctx context.Context, p process, entity, id string) error {
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
		return e.say(p, inv, "would enqueue %s %s%s %s\n", printable(entity), printable(id), when, inv.RawParams)
	}
	err = e.mysql.onSessions(ctx, "enqueue", func(s *session.Sessions) error {
		return outbox.InTx(ctx, s.DB(), func(tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, inv) })
	})
	if err != nil {
		return err
	}
	return e.say(p, inv, "enqueued %s %s%s\n", printable(entity), printable(id), when)
}

// say prints the row: as a sentence, or as an object.
func (e *enqueueCommand) say(p process, inv outbox.Invalidation, format string, args ...any) error {
	if !e.json {
		_, err := fmt.Fprintf(p.Out, format, args...)
		return err
	}
	row := struct {
		DryRun    bool            `json:"dry_run"`
		Entity    string          `json:"entity"`
		EntityID  string          `json:"entity_id"`
		Params    json.RawMessage `json:"params"`
		NotBefore *time.Time      `json:"not_before"`
		Trace     string          `json:"trace"`
	}{e.dryRun, inv.Entity, inv.ID, inv.RawParams, nil, inv.Trace}
	if !inv.NotBefore.IsZero() {
		row.NotBefore = new(inv.NotBefore.UTC())
	}
	return output.JSON(p.Out, row)
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
