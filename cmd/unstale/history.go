package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/output"
)

// historyCommand is "unstale history".
type historyCommand struct {
	mysqlFlags
	redis redisFlags
	query history.Query

	quoted string // the key as a Go string
	mapOf  string // file of the map, or empty
	json   bool
}

func newHistory(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show when and why keys were unlinked",
		Long: `Show when keys were unlinked, in which batch, by which worker and with which version of the map; the
newest last. Search by one of these:

  --key                 the key itself: by name, or by a pattern that matches it. The name of an
                        index set finds when it was cleared. The members of a set are not in the
                        journal, so whether one of them was this key is unknown.
  --key-quoted          a key with bytes that an argument cannot have, as shown in the output
  --entity and --id     the entity that changed
  --trace               the trace of the request
  --row                 the row's ID in cache_outbox; also shows where the row is now

The last lines say whether the key, or the keys of these rows, are stale, and why, as the console's
search does, unless --since leaves out a part of the journal. With --map, the answer shows which rows
of the map reach the key, and the output names the read of the map that has it.

With --key and a Redis, a line shows the key's current state, and the lease time of an entry
of package cache. With a Redis, the output also lists processes that report (cache.Memory.Report)
that they evicted the keys from their in-process cache; of other processes it is unknown.

The journal reaches back for --journal-retention of the workers. Evictions, expirations and deletes
without unstale are not in the journal.`,
		Example: `  unstale history --key shop:product:42
  unstale history --entity product --id 42
  unstale history --trace request-7f3a --since 10m
  unstale history --row 1234 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(refuseEmpty(cmd.Flags(), "key", "key-quoted", "entity", "id", "trace", "row", "since"), h.check()); err != nil {
				return err
			}
			return h.run(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	h.redis.add(flags)
	flags.StringVar(&h.query.Key, "key", "", "key, byte for byte, or name of an index set")
	flags.StringVar(&h.quoted, "key-quoted", "", `--key as this program shows one with control characters or broken UTF-8: "a\x00b", with the quotes`)
	flags.StringVar(&h.query.Entity, "entity", "", "rows of this entity")
	flags.StringVar(&h.query.EntityID, "id", "", "only this id; needs --entity")
	flags.StringVar(&h.query.Trace, "trace", "", "rows with this trace")
	flags.Uint64Var(&h.query.Row, "row", 0, "the row with this id in cache_outbox")
	flags.StringVar(&h.mapOf, "map", "", "the map's file, to name the read of --key")
	h.addCommon(flags)
	showEnv(flags, "key", "key-quoted", "entity", "id", "trace", "row", "since", "limit", "json")
	return cmd
}

// addCommon adds the flags of every question.
func (h *historyCommand) addCommon(flags *pflag.FlagSet) {
	h.add(flags)
	flags.DurationVar(&h.query.Since, "since", 0, "only batches settled within this time (default: all of the journal)")
	flags.IntVar(&h.query.Limit, "limit", 100, "the newest, at most this many")
	flags.BoolVar(&h.json, "json", false, "print one JSON object")
}

func (h *historyCommand) check() error {
	q := &h.query
	if h.quoted != "" {
		key, err := strconv.Unquote(h.quoted)
		if err != nil || h.quoted[0] != '"' || key == "" || q.Key != "" {
			return usageError{fmt.Errorf(`--key-quoted %s: must be a key in double quotes, for example "a\x00b", instead of --key`, printable(h.quoted))}
		}
		q.Key = key
	}
	switch {
	case q.Entity == "" && q.EntityID != "":
		return usageError{errors.New("--id needs --entity")}
	case q.Key == "" && q.Entity == "" && q.Trace == "" && q.Row == 0:
		return usageError{errors.New("of what? give --key, --entity, --trace or --row, for example: unstale history --key shop:product:42")}
	case q.Since < 0:
		return usageError{fmt.Errorf("--since %s: must be a positive duration, for example 1h", q.Since)}
	}
	return checkLimit(h.query.Limit)
}

func (h *historyCommand) run(ctx context.Context, p process) error {
	db, err := h.open("history")
	if err != nil {
		return err
	}
	h.query.Unsettled = true
	finder := history.Finder{DB: db, Redis: h.withRedis, NoMap: "no map is given (--map)", Query: h.query}
	var noMap error
	if h.mapOf != "" {
		if finder.Map, noMap = loadMap(p, h.mapOf); noMap != nil {
			finder.NoMap = "the map cannot be read"
		}
	}
	q := &h.query
	f := finder.Find(ctx, history.Question{Key: q.Key, Entity: q.Entity, ID: q.EntityID, Trace: q.Trace, Row: q.Row})
	if err = errors.Join(orSchema(ctx, db, f.Failed), db.Close()); err != nil {
		return err
	}
	all := f.Past
	slices.Reverse(all.Found) // the newest last
	if q.Since == 0 {
		all.Answer = &f.Answer
	}
	if q.Key != "" {
		all.Now, all.Reads = &f.Entry.Now, f.Reads
	}
	if noMap != nil { // it is no reason to hide the journal
		problem, _, _ := strings.Cut(noMap.Error(), "\n")
		all.Miss("the read of the key is unknown", errors.New(problem))
	}
	if h.json {
		return output.JSON(p.Out, all)
	}
	h.print(p, all)
	return nil
}
