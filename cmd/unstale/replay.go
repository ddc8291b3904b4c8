package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/replay"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
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
	dryRun   bool
	json     bool
}

func newReplay(p process) *cobra.Command {
	r := &replayCommand{}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Unlink again what the journal says was unlinked",
		Long: `Unlink and publish again what the journal says was unlinked, oldest first. Workers heal by
themselves what they see that Redis has lost; this is for what they cannot know, such as a
snapshot restored by hand or a cache that was filled from an old database. It is harmless:
at worst a reader loads something once more. Patterns and index sets are requested again,
and swept by the workers. The keys are in the journal, so no map is needed: where there is none,
messages go where the workers say that theirs go; with --channel and --format nobody is asked.`,
		Example: `  unstale replay --since 10m --dry-run
  unstale replay --since 10m
  unstale replay --since 24h --entity product --id 42`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(refuseEmpty(cmd.Flags(), "since", "entity", "id"), r.check()); err != nil {
				return err
			}
			r.needsMap = r.namesMap(cmd, p)
			return r.run(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	r.mysql.add(flags)
	r.redis.add(flags)
	flags.StringVar(&r.mapFile, "map", "mapping.yaml", "the map's file, for the channel and the format of messages; not read if both are given")
	flags.StringVar(&r.channel, "channel", "", "publish on this channel (default that of --map, or of the workers)")
	flags.StringVar(&r.format, "format", "", "format of the messages: event or array (default that of --map, or of the workers)")
	flags.DurationVar(&r.query.Since, "since", 0, "batches settled within this time")
	flags.BoolVar(&r.all, "all", false, "the whole journal")
	flags.StringVar(&r.query.Entity, "entity", "", "only rows of this entity")
	flags.StringVar(&r.query.EntityID, "id", "", "only rows with this id; needs --entity")
	flags.BoolVar(&r.dryRun, "dry-run", false, "count, do nothing")
	flags.BoolVar(&r.json, "json", false, "print one JSON object")
	showEnv(flags, "since", "all", "entity", "id", "channel", "format", "dry-run", "json")
	return cmd
}

// namesMap reports whether somebody wants a certain map: the variable alone does not, if that is the image's, and nobody has
// put a file there.
func (r *replayCommand) namesMap(cmd *cobra.Command, p process) bool {
	named, _ := p.Env(envName("map"))
	return cmd.Flags().Changed("map") && r.mapFile != named
}

func (r *replayCommand) check() error {
	switch {
	case r.query.Since < 0:
		return usageError{fmt.Errorf("--since %s: wanted a time that has passed, such as 10m", r.query.Since)}
	case (r.query.Since == 0) != r.all:
		return usageError{errors.New("how much? give either --since, such as --since 10m, or --all")}
	case r.format != "" && r.format != string(protocol.FormatEvent) && r.format != string(protocol.FormatArray):
		return usageError{fmt.Errorf("--format %q: wanted event or array", r.format)}
	case r.query.EntityID != "" && r.query.Entity == "":
		return usageError{errors.New("--id needs --entity")}
	}
	return nil
}

// publication is where and how to publish: as the flags say, else as the map does, else, without one, as the workers say
// that they do, else as a map that says nothing. What the flags say is asked of nobody.
func (r *replayCommand) publication(ctx context.Context, p process, s *store.Store) (channel string, format protocol.Format, err error) {
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
	if r.channel != "" {
		channel = r.channel
	}
	if r.format != "" {
		format = protocol.Format(r.format)
	}
	return channel, format, nil
}

// asWorkers is where and how the workers publish that live, or the one that lived last.
func (r *replayCommand) asWorkers(ctx context.Context, p process, s *store.Store) (channel string, format protocol.Format, err error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return "", "", fmt.Errorf("where do messages go? there is no %s, and %w; give --channel and --format", r.mapFile, orSchema(ctx, s, err))
	}
	asked := slices.DeleteFunc(slices.Clone(workers), func(w store.WorkerNote) bool { return !w.Lives() })
	if len(asked) == 0 {
		asked = workers[:min(len(workers), 1)]
	}
	why := "since no worker was heard within a day"
	channel, format = invalidation.DefaultChannel, protocol.FormatEvent
	for i := range asked {
		w, first := &asked[i], &asked[0]
		if w.Channel != first.Channel || w.Format != first.Format {
			return "", "", fmt.Errorf("where do messages go? worker %s publishes on %s (%s), and worker %s on %s (%s); give --channel and --format",
				first.Name, first.Channel, first.Format, w.Name, w.Channel, w.Format)
		}
		channel, format, why = w.Channel, protocol.Format(w.Format), "as those of worker "+first.Name
	}
	if !r.dryRun {
		fmt.Fprintf(p.Err, "no %s here: messages go to %s (%s), %s; see --map and --channel\n", r.mapFile, printable(channel), format, printable(why))
	}
	return channel, format, nil
}

func (r *replayCommand) run(ctx context.Context, p process) error {
	options, err := r.redis.options()
	if err != nil {
		return err
	}
	store, err := r.mysql.open("replay")
	if err != nil {
		return err
	}
	channel, format, err := r.publication(ctx, p, store)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	redis, err := keyspace.Open(options) // without beacons: the journal has its batches already
	if err != nil {
		return errors.Join(err, store.Close())
	}
	job := replay.Job{Store: store, Redis: redis, Channel: channel, Format: format, Query: r.query, DryRun: r.dryRun, Progress: r.progress(p)}
	result, err := job.Run(ctx)
	err = errors.Join(orSchema(ctx, store, err), redis.Close(), store.Close())
	return r.report(p, result, err)
}

// progressInterval is the time between two lines of progress.
const progressInterval = 2 * time.Second

// progress tells on the error stream how far a long replay is.
func (r *replayCommand) progress(p process) func(replay.Result) {
	said := time.Now()
	return func(result replay.Result) {
		if time.Since(said) >= progressInterval {
			said = time.Now()
			fmt.Fprintf(p.Err, "%s, %s\n", count(result.Batches, "batch", "batches"), count(result.Keys, "key"))
		}
	}
}

// report says what was done, also when it did not come to its end.
func (r *replayCommand) report(p process, result replay.Result, err error) error {
	if r.json {
		_ = output.JSON(p.Out, struct { // a write that fails is told at the end, and is no failure of the replay
			DryRun bool `json:"dry_run"`
			replay.Result
		}{r.dryRun, result})
	} else {
		would := ""
		if r.dryRun {
			would = "would have "
		}
		fmt.Fprintf(p.Out, "%sunlinked %s of %s in %s, %srequested %s\n",
			would, count(result.Keys, "key"), count(result.Rows, "row"), count(result.Batches, "batch", "batches"), would, count(result.Sweeps, "sweep"))
	}
	switch {
	case err != nil:
		return fmt.Errorf("replay is not complete, run it again: %w", err)
	case len(result.Damaged) > 0:
		return fmt.Errorf("everything else is done, but these batches of the journal cannot be read: %v; what they unlinked may be "+
			"stale until its TTL, so invalidate again what was written at that time", result.Damaged)
	case result.Refused > 0:
		return fmt.Errorf("redis refuses %s; give its account the rights and run it again", count(result.Refused, "key"))
	}
	return nil
}
