package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/store"
)

const (
	historyRows = 10_000_000
	historyPart = 4000 // rows a statement
	historyGap  = 100  // one row in so many has a pattern
)

// A historyBench is the mode under way.
type historyBench struct {
	cfg   Config
	shop  *shop
	store *store.Store
	rows  int
	batch int // rows of one
}

// history measures searches of a journal of ten million rows, in batches of 1,000 and of 1. The
// floor is the scan that ReadJournal makes, which finds an entity's batches by the hashes that each
// has. Ours and the floor are the slowest median of a shape.
func history(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	pools, err := s.pools("history")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pools.Close()) }()
	r = &Report{Unit: "s", Machine: s.machine(), Details: map[string]any{"rows": historyRows / cfg.Scale, "searches": cfg.Runs}}
	for _, batch := range []int{1000, 1} {
		b := &historyBench{cfg, s, pools, historyRows / cfg.Scale, batch}
		if err := b.run(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (b *historyBench) run(ctx context.Context, r *Report) error {
	shape := fmt.Sprintf("batches_of_%d", b.batch)
	fmt.Fprintf(b.cfg.Progress, "%s: writing %d rows\n", shape, b.rows)
	if err := b.fill(ctx); err != nil {
		return err
	}
	written, err := b.size(ctx, "cache_outbox_journal")
	if err != nil {
		return err
	}
	fmt.Fprintf(b.cfg.Progress, "%s: summarising\n", shape)
	took, err := b.summarise(ctx)
	if err != nil {
		return err
	}
	summaries, err := b.size(ctx, "cache_outbox_summaries")
	if err != nil {
		return err
	}
	details := map[string]any{
		"journal_bytes_per_row": written / float64(b.rows), "summary_bytes_per_row": summaries / float64(b.rows),
		"us_to_summarise_a_row": 1e6 * took / float64(b.rows),
	}
	r.Details[shape] = details
	fmt.Fprintf(b.cfg.Progress, "%s: searching\n", shape)
	for _, kind := range b.kinds() {
		var seconds []float64
		found := 0
		for range b.cfg.Runs {
			took, err := timed(func() (err error) { found, err = b.search(ctx, kind.query); return err })
			if err != nil {
				return err
			}
			seconds = append(seconds, took)
		}
		if (found > 0) != kind.hit {
			return fmt.Errorf("%s, %s: found %d", shape, kind.name, found)
		}
		details["s_"+kind.name] = median(seconds)
		r.Ours = max(r.Ours, median(seconds))
	}
	var floors []float64
	for range b.cfg.Runs {
		took, err := timed(func() error {
			return b.store.Journal.ReadJournal(ctx, store.JournalQuery{Entity: "product", EntityID: b.id(b.rows / 2)},
				func(store.Batch, []store.JournalEntry) error { return nil }, func(store.DamagedBatch) {})
		})
		if err != nil {
			return err
		}
		floors = append(floors, took)
	}
	details["s_floor_entity"] = median(floors)
	r.Floor = max(r.Floor, median(floors))
	return nil
}

// A historyKind is something that is searched for.
type historyKind struct {
	name  string
	query store.JournalQuery
	hit   bool
}

func (b *historyBench) kinds() []historyKind {
	middle := b.rows / 2 / historyGap * historyGap // it has a pattern
	key := func(i int) string { return b.entry(i).Keys[0] }
	return []historyKind{
		{"key_hit", store.JournalQuery{Key: key(middle)}, true},
		{"key_oldest", store.JournalQuery{Key: key(1)}, true},
		{"key_newest", store.JournalQuery{Key: key(b.rows - 1)}, true},
		{"key_miss", store.JournalQuery{Key: key(2 * b.rows)}, false},
		{"entity_hit", store.JournalQuery{Entity: "product", EntityID: b.id(middle)}, true},
		{"entity_miss", store.JournalQuery{Entity: "product", EntityID: b.id(2 * b.rows)}, false},
		{"trace_hit", store.JournalQuery{Trace: b.entry(middle).Trace}, true},
		{"trace_miss", store.JournalQuery{Trace: "none"}, false},
		{"row_hit", store.JournalQuery{Row: uint64(middle) + 1}, true},
		{"row_miss", store.JournalQuery{Row: uint64(b.rows) + 1000}, false},
		{"pattern_hit", store.JournalQuery{Key: strings.TrimSuffix(b.entry(middle).Patterns[0], "*") + "x"}, true},
		{"pattern_miss", store.JournalQuery{Key: "zahraah:prod:category:none:list:x"}, false},
	}
}

// search returns what "unstale history" does, with its limit.
func (b *historyBench) search(ctx context.Context, q store.JournalQuery) (found int, err error) {
	err = b.store.Journal.SearchJournal(ctx, q, func(_ store.Batch, entries []store.JournalEntry) bool {
		found += len(entries)
		return found < 100
	}, func(store.DamagedBatch) {})
	return found, err
}

func (b *historyBench) id(i int) string { return fmt.Sprint(1_000_000 + i) }

// entry returns a row's. Each has another id and another trace, three keys, and now and then a
// pattern, each of which has a thousand rows in ten million.
func (b *historyBench) entry(i int) store.JournalEntry {
	id := b.id(i)
	e := store.JournalEntry{
		ID: uint64(i) + 1, Entity: "product", EntityID: id, Trace: fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15),
		Keys: []string{"zahraah:prod:product:" + id, "zahraah:prod:product:" + id + ":reviews", "zahraah:prod:product:" + id + ":stock"},
	}
	if i%historyGap == 0 {
		e.Patterns = []string{fmt.Sprintf("zahraah:prod:category:%d:list:*", i/historyGap%100)}
	}
	return e
}

// fill writes the journal as workers do, with many batches in a statement.
func (b *historyBench) fill(ctx context.Context) error {
	for _, table := range []string{"cache_outbox_journal", "cache_outbox_summaries"} {
		if _, err := b.shop.db.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	for from := 0; from < b.rows; from += historyPart {
		var values []string
		var args []any
		for at := from; at < min(from+historyPart, b.rows); at += b.batch {
			entries := make([]store.JournalEntry, min(b.batch, b.rows-at))
			hashes := make([]uint32, len(entries))
			for i := range entries {
				entries[i] = b.entry(at + i)
				hashes[i] = store.Hash(entries[i].Entity, entries[i].EntityID)
			}
			slices.Sort(hashes)
			var list []byte
			for _, h := range hashes {
				list = binary.BigEndian.AppendUint32(list, h)
			}
			body, err := store.EncodeEntries(entries)
			if err != nil {
				return err
			}
			values = append(values, "('bench',?,'','',0,?,?)")
			args = append(args, len(entries), list, body)
		}
		if _, err := b.shop.db.ExecContext(ctx, "INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, hashes, body) VALUES "+
			strings.Join(values, ","), args...); err != nil {
			return err
		}
	}
	return nil
}

// summarise makes all summaries without the pauses of a worker.
func (b *historyBench) summarise(ctx context.Context) (seconds float64, err error) {
	return timed(func() error {
		for n := 1; n > 0; {
			if n, err = b.store.Summaries.Summarise(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// size returns how many bytes a table has.
func (b *historyBench) size(ctx context.Context, table string) (bytes float64, err error) {
	if _, err := b.shop.db.ExecContext(ctx, "ANALYZE TABLE "+table); err != nil {
		return 0, err
	}
	err = b.shop.db.QueryRowContext(ctx, "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
		table).Scan(&bytes)
	return bytes, err
}
