package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// replayCommand is "unstale replay".
type replayCommand struct {
	mysql    mysqlFlags
	redis    redisFlags
	mapFile  string
	needsMap bool // it was named
	channel  string
	format   string
	query    store.JournalQuery
	all      bool
	table    string // of the database, instead of the journal
	dryRun   bool
	json     bool
}

func newReplay(p process) *cobra.Command {
	r := &replayCommand{}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Unlink the keys of the journal, or of a table, again",
		Long: `Unlink and publish the keys of the journal again, oldest first. Workers heal lost writes that they
detect. Replay is for losses that they cannot detect, such as a snapshot restored by hand or a cache
that was filled from an old database. It is harmless: at worst a reader loads a value again.
Patterns and index sets are requested again, and workers sweep them. The keys are in the journal, so
no map is needed: without one, messages go to the workers' channel, or to --channel in --format.

With --table, the command inserts an outbox row for each row of a captured table, for the writes of
a time without triggers. It reads the table in pages by the primary key, and waits while workers
have 5,000 rows to process. It cannot see rows that were deleted in that time, nor values that were
replaced, and prints the patterns of their keys.`,
		Example: `  unstale replay --since 10m --dry-run
  unstale replay --since 10m
  unstale replay --since 24h --entity product --id 42
  unstale replay --table products`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(refuseEmpty(cmd.Flags(), "since", "entity", "id", "table"), r.check()); err != nil {
				return err
			}
			if r.table != "" {
				return r.replayTable(cmd.Context(), p)
			}
			r.needsMap = r.namesMap(cmd, p)
			return r.replayJournal(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	r.mysql.addMySQLFlags(flags)
	r.redis.addRedisFlags(flags)
	r.redis.addKey(flags)
	flags.StringVar(&r.mapFile, "map", defaultMap, "the map's file, for the channel and the format of messages; not read if both are given")
	flags.StringVar(&r.channel, "channel", "", "publish on this channel (default that of --map, or of the workers)")
	flags.StringVar(&r.format, "format", "", "format of the messages: event or array (default that of --map, or of the workers)")
	flags.DurationVar(&r.query.Since, "since", 0, "batches settled within this time")
	flags.BoolVar(&r.all, "all", false, "the whole journal")
	flags.StringVar(&r.table, "table", "", "all rows of this table of the database, which the map captures, instead of the journal")
	flags.StringVar(&r.query.Entity, "entity", "", "only rows of this entity")
	flags.StringVar(&r.query.EntityID, "id", "", "only rows with this id; needs --entity")
	flags.BoolVar(&r.dryRun, "dry-run", false, "count, do nothing")
	flags.BoolVar(&r.json, "json", false, "print one JSON object")
	return cmd
}

// namesMap reports whether the call requires a certain map. The variable alone does not, if it is
// the image's and its file does not exist.
func (r *replayCommand) namesMap(cmd *cobra.Command, p process) bool {
	named, _ := p.Env(envName("map"))
	return cmd.Flags().Changed("map") && r.mapFile != named
}

func (r *replayCommand) check() error {
	switch {
	case r.query.Since < 0:
		return usageError{fmt.Errorf("--since %s: must be a positive duration, for example 10m", r.query.Since)}
	case r.table != "" && (r.query.Since != 0 || r.all || r.query.Entity != "" || r.query.EntityID != "" || r.channel != "" || r.format != ""):
		return usageError{errors.New("--table takes no flag of the journal: --since, --all, --entity, --id, --channel or --format")}
	case r.table == "" && (r.query.Since == 0) != r.all:
		return usageError{errors.New("how much? give either --since, such as --since 10m, or --all; or --table")}
	case r.format != "" && r.format != string(protocol.FormatEvent) && r.format != string(protocol.FormatArray):
		return usageError{fmt.Errorf("--format %q: must be event or array", r.format)}
	case r.query.EntityID != "" && r.query.Entity == "":
		return usageError{errors.New("--id needs --entity")}
	}
	return nil
}

// publication returns where and how to publish: by the flags, else by the map, else, without a map,
// as the workers do, else by an empty map. With both flags, neither is consulted.
func (r *replayCommand) publication(ctx context.Context, p process, s *session.Sessions) (channel string, format protocol.Format, err error) {
	if r.channel != "" && r.format != "" {
		return r.channel, protocol.Format(r.format), nil
	}
	m, err := loadMap(p, r.mapFile)
	switch {
	case err == nil:
		channel, format = m.Channel(), m.Format()
	case r.needsMap || !errors.Is(err, os.ErrNotExist):
		return "", "", mapError(err)
	default:
		if channel, format, err = r.asWorkers(ctx, p, s); err != nil {
			return "", "", err
		}
	}
	return cmp.Or(r.channel, channel), cmp.Or(protocol.Format(r.format), format), nil
}

// asWorkers returns where and how live workers publish, or the last one that was live.
func (r *replayCommand) asWorkers(ctx context.Context, p process, s *session.Sessions) (channel string, format protocol.Format, err error) {
	workers, err := store.NewWorkers(s).Workers(ctx)
	if err != nil {
		return "", "", fmt.Errorf("where do messages go? there is no %s, and %w; give --channel and --format", r.mapFile, orSchema(ctx, s, err))
	}
	asked := slices.DeleteFunc(slices.Clone(workers), func(w store.WorkerNote) bool { return !w.Lives() })
	if len(asked) == 0 {
		asked = workers[:min(len(workers), 1)]
	}
	why := "since no worker has run within a day"
	channel, format = protocol.DefaultChannel, protocol.FormatEvent
	for i := range asked {
		w, first := &asked[i], &asked[0]
		if w.Channel != first.Channel || w.Format != first.Format {
			return "", "", fmt.Errorf("where do messages go? worker %s publishes on %s (%s), and worker %s on %s (%s); give --channel and --format",
				first.Name, first.Channel, first.Format, w.Name, w.Channel, w.Format)
		}
		channel, format, why = w.Channel, protocol.Format(w.Format), "like worker "+first.Name
	}
	if !r.dryRun {
		fmt.Fprintf(p.Err, "no %s here: messages go to %s (%s), %s; see --map and --channel\n", r.mapFile, printable(channel), format, printable(why))
	}
	return channel, format, nil
}

func (r *replayCommand) replayJournal(ctx context.Context, p process) error {
	options, err := r.redis.options()
	if err != nil {
		return err
	}
	db, err := r.mysql.open("replay")
	if err != nil {
		return err
	}
	channel, format, err := r.publication(ctx, p, db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	redis, err := keyspace.Open(options) // without beacons: the journal has its batches already
	if err != nil {
		return errors.Join(err, db.Close())
	}
	job := history.Job{MySQL: db, Unlinker: redis.Unlinker, Publisher: redis.Publisher, Channel: channel, Format: format, Query: r.query, DryRun: r.dryRun}
	job.Progress = progress(p, func(done history.Result) string {
		return output.Things(done.Batches, "batch", "batches") + ", " + output.Things(done.Keys, "key")
	})
	result, err := job.Run(ctx)
	err = errors.Join(orSchema(ctx, db, err), redis.Close(), db.Close())
	return r.printResult(p, result, err)
}

// progressInterval is the time between two lines of progress.
const progressInterval = 2 * time.Second

// progress returns a function that tells on the error stream how far a long action is.
func progress[Done any](p process, text func(Done) string) func(Done) {
	said := time.Now()
	return func(done Done) {
		if time.Since(said) >= progressInterval {
			said = time.Now()
			fmt.Fprintln(p.Err, text(done))
		}
	}
}

// printResult prints what was done, even if it did not finish.
func (r *replayCommand) printResult(p process, result history.Result, err error) error {
	if r.json {
		// a write error is reported at the end, and does not fail the replay
		_ = output.JSON(p.Out, struct {
			DryRun bool `json:"dry_run"`
			history.Result
		}{r.dryRun, result})
	} else {
		would := ""
		if r.dryRun {
			would = "would have "
		}
		fmt.Fprintf(p.Out, "%sunlinked %s of %s in %s, %srequested %s\n",
			would, output.Things(result.Keys, "key"), output.Things(result.Rows, "row"), output.Things(result.Batches, "batch", "batches"), would, output.Things(result.Sweeps, "sweep"))
	}
	if err != nil {
		return fmt.Errorf("replay is not complete, run it again: %w", err)
	}
	return result.Problem()
}
