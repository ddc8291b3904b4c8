package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
)

// historyCommand is "unstale history".
type historyCommand struct {
	mysqlFlags
	redis redisFlags
	query journal.JournalQuery

	quoted string // the key as a Go string
	mapOf  string // file of the map, or empty
	limit  int
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

With --key and --map, the output names the read of the map that has the key.

With --key and a Redis, the last line shows the key's current state, and the lease time of an entry
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
	flags.IntVar(&h.limit, "limit", 100, "the newest, at most this many")
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
	return checkLimit(h.limit)
}

// A settlement is one row's entry in the journal, or a finished sweep's, as an object.
type settlement struct {
	SettledAt time.Time `json:"settled_at"`
	// by the clock of Redis, before the first UNLINK; null: not known
	BornAt     *time.Time `json:"born_at"`
	Batch      uint64     `json:"batch"`
	Worker     string     `json:"worker"`
	MapVersion string     `json:"map_version"`
	Row        uint64     `json:"row"`
	// the request that was carried out; then there is no row
	Sweep    uint64 `json:"sweep,omitempty"`
	Entity   string `json:"entity"`
	EntityID string `json:"entity_id"`
	Trace    string `json:"trace"`
	// a lookup of the row had failed, and these names need none; the row was not settled
	Partial  bool     `json:"partial"`
	Keys     []string `json:"keys"`
	Patterns []string `json:"patterns"`
	Sets     []string `json:"sets"`

	// The way of the row and its batch, by the database's clock; null: not known, or there was
	// none.
	WrittenAt   *time.Time `json:"written_at"`
	ClaimedAt   *time.Time `json:"claimed_at"`
	UnlinkedAt  *time.Time `json:"unlinked_at"`
	PublishedAt *time.Time `json:"published_at"`
	Receivers   *int       `json:"receivers"` // of the message with the fewest subscribers
	Messages    uint64     `json:"messages"`  // of the batch; 0: not known

	// processes that report it; whether others did is unknown. null: not known
	EvictedBy      []evictor `json:"evicted_by"`
	EvictedUnknown string    `json:"evicted_unknown,omitempty"`

	runs  []journal.Run // the messages
	least bool          // processes have received more than they report
}

func newSettlement(b journal.Batch, e *journal.Entry) settlement {
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

// before returns a time so long before another one, nil where that is not known.
func before(settled time.Time, ago time.Duration) *time.Time {
	if ago == 0 {
		return nil
	}
	at := settled.Add(-ago)
	return &at
}

// A past is the result from the journal, and from the tables of rows that are not settled.
type past struct {
	More    bool         `json:"more"` // older ones are left out
	Found   []settlement `json:"found"`
	Damaged []uint64     `json:"damaged"` // batches that cannot be read

	// Unreported are how many messages processes have received and not reported, since the oldest
	// of these rows or shortly before.
	Unreported map[string]uint64 `json:"unreported,omitempty"`

	// what could not be read, or not quickly, and the grant that is missing
	Untold []string `json:"untold,omitempty"`

	// what Redis holds under the key, if it was asked for
	Now   *now         `json:"now,omitempty"`
	Waits []whereabout `json:"waits,omitempty"` // where the row is now, if it was asked for
	Reads []readOf     `json:"reads,omitempty"` // that have the key, if there is a map
	since *time.Time   // the journal's beginning, where nothing was found
}

// A whereabout is the table of a row that is not settled, or has a repeat.
type whereabout struct {
	Where  string     `json:"where"` // outbox, delayed or dead
	DueAt  *time.Time `json:"due_at,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Error  string     `json:"error,omitempty"`
}

func (h *historyCommand) run(ctx context.Context, p process) error {
	db, err := h.open("history")
	if err != nil {
		return err
	}
	all, err := h.read(ctx, db)
	if err = errors.Join(orSchema(ctx, db, err), db.Close()); err != nil {
		return err
	}
	h.evictions(ctx, all)
	if h.query.Key != "" {
		all.Now = h.lookNow(ctx)
		h.nameReads(p, all)
	}
	if h.json {
		return output.JSON(p.Out, all)
	}
	h.print(p, all)
	return nil
}

// nameReads adds the reads of the map that have the key. A map that cannot be read is no reason to
// hide the journal.
func (h *historyCommand) nameReads(p process, all *past) {
	if h.mapOf == "" {
		return
	}
	m, err := loadMap(p, h.mapOf)
	if err != nil {
		problem, _, _ := strings.Cut(err.Error(), "\n")
		all.untold("the read of the key is unknown", errors.New(problem))
		return
	}
	all.Reads = readsWith(m, h.query.Key)
}

// manyUnsummarised is more batches than wait for their summary while a worker keeps up: it
// summarizes every ten seconds.
const manyUnsummarised = 20_000

// read keeps the newest, and lists the batches that cannot be read.
func (h *historyCommand) read(ctx context.Context, db *session.Sessions) (*past, error) {
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
	err := journal.New(db).SearchJournal(ctx, h.query, func(b journal.Batch, entries []journal.Entry) bool {
		for i := range slices.Backward(entries) {
			if all.More = len(all.Found) == h.limit; all.More {
				return false
			}
			all.Found = append(all.Found, newSettlement(b, &entries[i]))
		}
		return true
	}, func(b journal.DamagedBatch) { all.Damaged = append(all.Damaged, b.ID) })
	slices.Reverse(all.Found)
	slices.Reverse(all.Damaged)
	if err == nil && len(all.Found) == 0 {
		all.since, err = journal.New(db).JournalStart(ctx)
	}
	if err != nil || h.query.Row == 0 {
		return all, err
	}
	list, err := operate.NewOrders(db).Whereabouts(ctx, h.query.Row)
	if session.MissingGrant(err) != "" {
		all.untold(fmt.Sprintf("where row %d is now is unknown", h.query.Row), err)
		return all, nil
	}
	for _, w := range list {
		all.Waits = append(all.Waits, whereabout{w.Table, w.DueAt, w.Reason, w.Error})
	}
	return all, err
}

// untold records the part of the result that a missing privilege hides.
func (p *past) untold(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if grant := session.MissingGrant(err); grant != "" {
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
