package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// historyCommand is "unstale history".
type historyCommand struct {
	mysqlFlags
	redis redisFlags
	query store.JournalQuery

	quoted string // the key as a Go string
	limit  int
	json   bool
}

func newHistory(p process) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show when and why a key or a row was unlinked, and in which batch",
		Long: `Show when the keys of something were unlinked, in which batch, by which worker and with which
version of the map: the newest last. Ask by key, where nothing else is known: what unlinked it by
name or by a pattern is found, and the name of an index set finds what took that apart. The
members of a set are not in the journal, so whether one of them was this key is unknown. A key with
bytes that no argument can have goes into --key-quoted, as it is shown here. Or ask by
entity, by trace, or by the row's id in cache_outbox, which also tells where the row is now. With
--key and a Redis the last line tells what is there now, and the birth of an entry of package cache.
With a Redis, processes that report it (cache.Memory.Report) are named that evicted the keys from
their memory; whether others did is unknown.

The journal reaches back for --journal-retention of the workers. What Redis evicted or let expire,
and what somebody deleted without unstale, is in no journal.`,
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
	flags.StringVar(&h.query.Key, "key", "", "what unlinked this key, byte for byte, or took apart the index set of this name")
	flags.StringVar(&h.quoted, "key-quoted", "", `--key as this program shows one with control characters or broken UTF-8: "a\x00b", with the quotes`)
	flags.StringVar(&h.query.Entity, "entity", "", "rows of this entity")
	flags.StringVar(&h.query.EntityID, "id", "", "only this id; needs --entity")
	flags.StringVar(&h.query.Trace, "trace", "", "rows with this trace")
	flags.Uint64Var(&h.query.Row, "row", 0, "the row with this id in cache_outbox")
	h.addCommon(flags)
	showEnv(flags, "key", "key-quoted", "entity", "id", "trace", "row", "since", "limit", "json")
	return cmd
}

// addCommon adds the flags of every question.
func (h *historyCommand) addCommon(flags *pflag.FlagSet) {
	h.add(flags)
	flags.DurationVar(&h.query.Since, "since", 0, "only batches settled within this time (default: all of the journal)")
	flags.IntVar(&h.limit, "limit", 100, "the newest, at most this many")
	flags.BoolVar(&h.json, "json", false, "print one JSON object")
}

func (h *historyCommand) check() error {
	q := &h.query
	if h.quoted != "" {
		key, err := strconv.Unquote(h.quoted)
		if err != nil || h.quoted[0] != '"' || key == "" || q.Key != "" {
			return usageError{fmt.Errorf(`--key-quoted %s: wanted a key in double quotes, such as "a\x00b", in place of --key`, printable(h.quoted))}
		}
		q.Key = key
	}
	switch {
	case q.Entity == "" && q.EntityID != "":
		return usageError{errors.New("--id needs --entity")}
	case q.Key == "" && q.Entity == "" && q.Trace == "" && q.Row == 0:
		return usageError{errors.New("of what? give --key, --entity, --trace or --row, for example: unstale history --key shop:product:42")}
	case q.Since < 0:
		return usageError{fmt.Errorf("--since %s: wanted a time that has passed, such as 1h", q.Since)}
	}
	return checkLimit(h.limit)
}

// A settlement is one row's entry in the journal, or a finished sweep's, as an object.
type settlement struct {
	SettledAt  time.Time  `json:"settled_at"`
	BornAt     *time.Time `json:"born_at"` // by the clock of Redis, before the first UNLINK; null: not known
	Batch      uint64     `json:"batch"`
	Worker     string     `json:"worker"`
	MapVersion string     `json:"map_version"`
	Row        uint64     `json:"row"`
	Sweep      uint64     `json:"sweep,omitempty"` // the request that was carried out; then there is no row
	Entity     string     `json:"entity"`
	EntityID   string     `json:"entity_id"`
	Trace      string     `json:"trace"`
	Partial    bool       `json:"partial"` // a lookup of the row had failed, and this is what needs none; the row was not settled
	Keys       []string   `json:"keys"`
	Patterns   []string   `json:"patterns"`
	Sets       []string   `json:"sets"`

	// The way of the row and its batch, by the database's clock; null: not known, or there was none.
	WrittenAt   *time.Time `json:"written_at"`
	ClaimedAt   *time.Time `json:"claimed_at"`
	UnlinkedAt  *time.Time `json:"unlinked_at"`
	PublishedAt *time.Time `json:"published_at"`
	Receivers   *int       `json:"receivers"` // of the message that the fewest subscribers heard
	Messages    uint64     `json:"messages"`  // of the batch; 0: not known

	EvictedBy      []evictor `json:"evicted_by"` // processes that report it; whether others did is unknown. null: not known
	EvictedUnknown string    `json:"evicted_unknown,omitempty"`

	runs  []store.Run // the messages
	least bool        // processes have heard more than they report
}

func newSettlement(b store.Batch, e *store.Entry) settlement {
	s := settlement{
		SettledAt: b.SettledAt, BornAt: b.BornAt(), Batch: b.ID, Worker: b.Worker, MapVersion: b.MapVersion, Row: e.ID,
		Entity: e.Entity, EntityID: e.EntityID, Trace: e.Trace, Partial: e.Partial, Keys: orNone(e.Keys), Patterns: orNone(e.Patterns), Sets: orNone(e.Sets),
	}
	if e.IsSweep() {
		s.Row, s.Sweep = 0, e.ID
	}
	if e.WrittenMicros != 0 {
		written := time.UnixMicro(e.WrittenMicros).UTC()
		s.WrittenAt = &written
	}
	if j := b.Journey; j != nil {
		s.ClaimedAt, s.UnlinkedAt, s.PublishedAt = before(b.SettledAt, j.Claimed), before(b.SettledAt, j.Unlinked), before(b.SettledAt, j.Published)
		s.runs = j.Runs
		if j.Receivers >= 0 {
			s.Receivers = &j.Receivers
		}
	}
	return s
}

// before is a time so long before another one, nil where that is not known.
func before(settled time.Time, ago time.Duration) *time.Time {
	if ago == 0 {
		return nil
	}
	at := settled.Add(-ago)
	return &at
}

// A past is what the journal tells, and the tables of rows that are not settled.
type past struct {
	More    bool         `json:"more"` // older ones are left out
	Found   []settlement `json:"found"`
	Damaged []uint64     `json:"damaged"` // batches that cannot be read

	// Unreported are how many messages processes have heard and not reported, since the oldest of these rows or shortly before.
	Unreported map[string]uint64 `json:"unreported,omitempty"`

	Untold []string `json:"untold,omitempty"` // what could not be read, or not quickly, and the grant that is missing

	Now   *now         `json:"now,omitempty"`   // what Redis holds under the key, if it was asked for
	Waits []whereabout `json:"waits,omitempty"` // where the row is now, if it was asked for
	since *time.Time   // the journal's beginning, where nothing was found
}

// A whereabout is where a row is that is not settled, or is to be unlinked again.
type whereabout struct {
	Where  string     `json:"where"` // outbox, delayed or dead
	DueAt  *time.Time `json:"due_at,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Error  string     `json:"error,omitempty"`
}

func (h *historyCommand) run(ctx context.Context, p process) error {
	store, err := h.open("history")
	if err != nil {
		return err
	}
	all, err := h.read(ctx, store)
	if err = errors.Join(orSchema(ctx, store, err), store.Close()); err != nil {
		return err
	}
	h.evictions(ctx, all)
	if h.query.Key != "" {
		all.Now = h.lookNow(ctx)
	}
	if h.json {
		return output.JSON(p.Out, all)
	}
	h.print(p, all)
	return nil
}

// manyUnsummarised is more batches than wait for their summary while a worker keeps up: it summarizes
// every ten seconds.
const manyUnsummarised = 20_000

// read keeps the newest, and lists the batches that cannot be read.
func (h *historyCommand) read(ctx context.Context, db *store.Store) (*past, error) {
	all := &past{Found: []settlement{}, Damaged: []uint64{}}
	h.query.Unsummarised = func(err error) {
		all.untold("the summaries of the journal cannot be read, so all of it is searched, which takes longer", err)
	}
	h.query.Searched = func(batches int) {
		if batches > manyUnsummarised && len(all.Untold) == 0 {
			all.Untold = append(all.Untold, fmt.Sprintf("%d batches of the journal have no summary yet, so the search read each of them, which takes longer; "+
				"workers summarize them: if that lasts, see whether one runs, and its log", batches))
		}
	}
	err := db.SearchJournal(ctx, h.query, func(b store.Batch, entries []store.Entry) bool {
		for i := range slices.Backward(entries) {
			if all.More = len(all.Found) == h.limit; all.More {
				return false
			}
			all.Found = append(all.Found, newSettlement(b, &entries[i]))
		}
		return true
	}, func(b store.DamagedBatch) { all.Damaged = append(all.Damaged, b.ID) })
	slices.Reverse(all.Found)
	slices.Reverse(all.Damaged)
	if err == nil && len(all.Found) == 0 {
		all.since, err = db.JournalStart(ctx)
	}
	if err != nil || h.query.Row == 0 {
		return all, err
	}
	list, err := db.Whereabouts(ctx, h.query.Row)
	if store.MissingGrant(err) != "" {
		all.untold(fmt.Sprintf("where row %d is now is unknown", h.query.Row), err)
		return all, nil
	}
	for _, w := range list {
		all.Waits = append(all.Waits, whereabout{w.Table, w.DueAt, w.Reason, w.Error})
	}
	return all, err
}

// untold notes what a missing right has kept from being told.
func (p *past) untold(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if grant := store.MissingGrant(err); grant != "" {
		text += "; " + granted(grant)
	}
	p.Untold = append(p.Untold, text)
}

// orNone makes an empty list of nil, for JSON.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
