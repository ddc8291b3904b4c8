package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(refuseEmpty(cmd.Flags(), "key", "key-quoted", "entity", "id", "trace", "row", "since"), h.check()); err != nil {
				return err
			}
			return h.printHistory(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	h.redis.addRedisFlags(flags)
	flags.StringVar(&h.query.Key, "key", "", "key, byte for byte, or name of an index set")
	flags.StringVar(&h.quoted, "key-quoted", "", `--key as this program shows one with control characters or broken UTF-8: "a\x00b", with the quotes`)
	flags.StringVar(&h.query.Entity, "entity", "", "rows of this entity")
	flags.StringVar(&h.query.EntityID, "id", "", "only this id; needs --entity")
	flags.StringVar(&h.query.Trace, "trace", "", "rows with this trace")
	flags.Uint64Var(&h.query.Row, "row", 0, "the row with this id in cache_outbox")
	flags.StringVar(&h.mapOf, "map", "", "the map's file, to name the read of --key")
	h.addCommon(flags)
	return cmd
}

// addCommon adds the flags of every question.
func (h *historyCommand) addCommon(flags *pflag.FlagSet) {
	h.addMySQLFlags(flags)
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

func (h *historyCommand) printHistory(ctx context.Context, p process) error {
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

// evicted describes which processes evicted the keys of the row.
func evicted(s *history.Settlement) string {
	if len(s.EvictedBy) == 0 {
		return " (which of them evicted it is unknown: " + printable(s.EvictedUnknown) + ")"
	}
	var names []string
	for i, e := range s.EvictedBy {
		if i == shownNames {
			names = append(names, fmt.Sprintf("%d more; see --json", len(s.EvictedBy)-i))
			break
		}
		name := printable(e.Process)
		if e.Messages < s.Messages {
			name += fmt.Sprintf(", %d of %d messages", e.Messages, s.Messages)
		}
		names = append(names, name)
	}
	text := " (reported as evicted by "
	if s.Least {
		text += "at least "
	}
	return text + strings.Join(names, " and ") + "; whether others evicted it is unknown)"
}

// printUnreported prints the messages that processes have received and not reported.
func printUnreported(p process, unreported map[string]uint64) {
	for _, process := range slices.Sorted(maps.Keys(unreported)) {
		fmt.Fprintf(p.Out, "note: %s did not report %s that it received, possibly of these rows\n", printable(process), output.Things(unreported[process], "message"))
	}
}

var errNoRedisURL = errors.New("no --redis-url is given")

func (h *historyCommand) withRedis(ask func(*keyspace.Contents) error) error {
	if h.redis.url.text == "" {
		return errNoRedisURL
	}
	return h.redis.onKeyspace(func(k *keyspace.Keyspace) error { return ask(k.Contents) })
}

func printNow(p process, n *history.Now) {
	text := "not in Redis"
	switch {
	case n.InRedis == nil:
		text = "unknown: " + n.Unknown
	case *n.InRedis && n.BornAt == nil:
		text = "in Redis, since when is unknown: it is not an entry of package cache"
	case *n.InRedis:
		text = "in Redis, an entry with the lease time " + n.BornAt.Format(time.RFC3339Nano)
	}
	fmt.Fprintf(p.Out, "now: %s\n", printable(text))
}

func (h *historyCommand) print(p process, all *history.Past) {
	switch {
	case len(all.Found) == 0 && all.Since == nil:
		fmt.Fprintln(p.Out, "nothing: the journal is empty")
	case len(all.Found) == 0:
		fmt.Fprintf(p.Out, "nothing; the journal begins at %s\n", all.Since.Format(time.RFC3339))
	case all.More:
		fmt.Fprintln(p.Out, "older ones are left out; see --limit and --since")
	}
	stale := all.Stale
	for i := range all.Found {
		stale = printStale(p, stale, all.Found[i].SettledAt)
		h.printOne(p, &all.Found[i])
	}
	printStale(p, stale, time.Time{})
	printUnreported(p, all.Unreported)
	for _, id := range all.Damaged {
		fmt.Fprintf(p.Out, "batch %d of the journal cannot be read, and may have more\n", id)
	}
	for _, text := range all.Untold {
		fmt.Fprintf(p.Out, "note: %s\n", printable(text))
	}
	for _, w := range all.Waits {
		printRowPlace(p, w)
	}
	if all.Now != nil {
		printReads(p, all.Reads)
		printNow(p, all.Now)
	}
	if h.query.Key != "" && len(all.Found) == 0 {
		fmt.Fprintln(p.Out, "unknown: whether Redis evicted or expired the key, whether it was a member of a cleared set, and deletes by others")
	}
	if a := all.Answer; a != nil {
		fmt.Fprintf(p.Out, "answer: %s\n", a.Text)
		for _, next := range a.Next {
			fmt.Fprintf(p.Out, "next: %s\n", next)
		}
	}
}

func (h *historyCommand) printOne(p process, s *history.Settlement) {
	what := fmt.Sprintf("row %d", s.Row)
	switch {
	case s.Sweep != 0:
		what = fmt.Sprintf("sweep %d", s.Sweep)
	case s.Row == 0:
		what = "scheduled by the application"
	}
	if s.Entity != "" {
		what += "  " + printable(s.Entity) + " " + printable(s.EntityID)
	}
	fmt.Fprintf(p.Out, "%s  batch %d  %s  worker %s  map %s\n", s.SettledAt.Format(time.RFC3339Nano), s.Batch, what, printable(s.Worker), s.MapVersion)
	if s.Sweep == 0 {
		fmt.Fprintf(p.Out, "  journey  %s\n", timeline(s))
	}
	if s.Partial {
		fmt.Fprintln(p.Out, "  partial  a lookup failed: these names need none, the rest was not unlinked then")
	}
	if s.Trace != "" {
		fmt.Fprintf(p.Out, "  trace    %s\n", printable(s.Trace))
	}
	keys, tags := withoutStamps(h.reaching(s.Keys, isName))
	printList(p, "key", keys)
	printList(p, "stamp", tags)
	printList(p, "pattern", h.reaching(s.Patterns, history.Matches))
	printList(p, "set", h.reaching(s.Sets, isName))
}

// timeline returns the timeline of a row, each step relative to when the row was written.
func timeline(s *history.Settlement) string {
	if s.WrittenAt == nil {
		return "unknown: a worker of an older version settled it"
	}
	step := func(what string, at *time.Time) string {
		if at == nil {
			return what + " unknown"
		}
		return what + " +" + at.Sub(*s.WrittenAt).Round(time.Microsecond).String()
	}
	published := "nothing published"
	if s.PublishedAt != nil {
		published = step("published", s.PublishedAt) + " to "
		if s.Receivers == nil {
			published += "an unknown number of receivers"
		} else {
			published += output.Things(*s.Receivers, "receiver")
		}
		if s.MayBeEvicted() {
			published += evicted(s)
		}
	}
	return strings.Join([]string{"written " + s.WrittenAt.Format(time.RFC3339Nano), step("claimed", s.ClaimedAt), step("unlinked", s.UnlinkedAt),
		published, step("settled", &s.SettledAt)}, ", ")
}

// reaching leaves out what did not unlink the key that was asked for: a row may have thousands.
func (h *historyCommand) reaching(names []string, reaches func(name, key string) bool) []string {
	if h.query.Key == "" {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !reaches(name, h.query.Key) })
}

func isName(name, key string) bool { return name == key }

func printRowPlace(p process, w store.RowPlace) {
	text := fmt.Sprintf("now: row %d ", w.Row)
	if w.Row == 0 {
		text = "now: a scheduled row "
	}
	switch w.Table {
	case "delayed":
		text += "is delayed until " + w.DueAt.Format(time.RFC3339)
	case "dead":
		text += "is a dead letter, see unstale dead list"
	default:
		text += "waits in cache_outbox"
	}
	for _, more := range []string{w.Reason, w.Error} {
		if more != "" {
			text += ": " + printable(more)
		}
	}
	fmt.Fprintln(p.Out, text)
}

// shownNames is how many keys, patterns or sets of a row are listed for people; --json lists all.
const shownNames = 10

func printList(p process, name string, list []string) {
	for i, text := range list {
		if i == shownNames {
			fmt.Fprintf(p.Out, "  %-8s and %d more; see --json\n", name, len(list)-i)
			return
		}
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("  %-8s %s", name, printable(text)), " "))
	}
}

// printStale prints the stale entries that were found before a time, and returns the others. The
// zero time is after all.
func printStale(p process, list []history.Stale, before time.Time) []history.Stale {
	for len(list) > 0 && (before.IsZero() || list[0].FoundAt.Before(before)) {
		s := list[0]
		list = list[1:]
		what := "stored during a hold"
		if s.LeasedAt != nil && s.LeasedAt.Before(s.UnlinkedAt) {
			what = fmt.Sprintf("leased %s before the UNLINK", s.UnlinkedAt.Sub(*s.LeasedAt))
		}
		end := "not unlinked"
		if s.Repaired {
			end = "unlinked again"
		}
		fmt.Fprintf(p.Out, "%s  stale entry  row %d  worker %s: %s, %s\n", s.FoundAt.Format(time.RFC3339Nano), s.Row, printable(s.Worker), what, end)
	}
	return list
}

// newTrace returns "unstale history --row" under the name that an operator with an ID looks for.
func newTrace(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Show the timeline of a row",
		Long: `Show the timeline of the row with this ID in cache_outbox: when it was written, claimed, unlinked,
published (with the number of receivers) and settled. The output also has processes that report to
have evicted its keys, if there is a Redis to ask, and where the row is now. "partial" marks names of
a row whose lookup had failed. The same as "unstale history --row ID", in text and in JSON.`,
		Example: `  unstale trace 1234
  unstale trace 1234 --json`,
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return usageError{fmt.Errorf("%q is not an ID: must be that of a row in cache_outbox, for example 1234", args[0])}
			}
			h.query.Row = id
			if err := errors.Join(refuseEmpty(cmd.Flags(), "since"), h.check()); err != nil {
				return err
			}
			return h.printHistory(cmd.Context(), p)
		},
	}
	h.redis.addRedisFlags(cmd.Flags())
	h.addCommon(cmd.Flags())
	return cmd
}
