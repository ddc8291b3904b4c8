package store_test

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/protocol"
)

// writeJournal appends batches with the given age, as a worker does.
func writeJournal(t testing.TB, db interface {
	Exec(string, ...any) (sql.Result, error)
}, ago time.Duration, batches ...[]store.JournalEntry) {
	t.Helper()
	var values []string
	var args []any
	for _, entries := range batches {
		body, err := store.EncodeEntries(entries)
		if err != nil {
			t.Fatal(err)
		}
		var hashes []byte
		for _, e := range entries {
			hashes = binary.BigEndian.AppendUint32(hashes, store.Hash(e.Entity, e.EntityID))
		}
		values = append(values, "('test', UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, '', ?, ?)")
		args = append(args, ago.Microseconds(), len(entries), hashes, body)
	}
	if _, err := db.Exec("INSERT INTO cache_outbox_journal (worker, settled_at, row_count, map_version, hashes, body) VALUES "+
		strings.Join(values, ","), args...); err != nil {
		t.Fatal(err)
	}
}

// shopBatches returns batches of a row or two each, with everything that can be searched for.
func shopBatches(from, n int) (batches [][]store.JournalEntry) {
	for i := from; i < from+n; i++ {
		e := store.JournalEntry{ID: uint64(i), Entity: "product", EntityID: fmt.Sprint(i % 50), Keys: []string{fmt.Sprintf("shop:product:%d", i%50), "shop:all"}}
		batch := []store.JournalEntry{e}
		switch i % 10 {
		case 3:
			batch[0].Trace = fmt.Sprint("request-", i%30)
			batch[0].Patterns = []string{fmt.Sprintf("shop:list:%d:*", i%20)}
		case 5:
			batch[0].Sets = []string{fmt.Sprint("tag:", i%20)}
			batch = append(batch, store.JournalEntry{ID: uint64(i) + 1000, Entity: "coupon", EntityID: "1", Keys: []string{"shop:coupon:1"}})
		case 7:
			batch = []store.JournalEntry{{ID: uint64(i), Patterns: []string{"shop:?:*", `shop:list:\*:*`, "shop:[ab]"}, HoldMillis: 2}}
		}
		batches = append(batches, batch)
	}
	return batches
}

// summariseAll runs summarizers in parallel, one per store, and returns how many batches they
// summarized. A process ends if another one is summarizing. All of them may end that way, so the
// first one summarizes the rest.
func summariseAll(t *testing.T, stores ...*store.Store) (total int) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	summarise := func(s *store.Store) {
		for {
			n, err := s.Summaries.Summarise(t.Context())
			if err != nil {
				t.Error(err)
			}
			if n == 0 {
				return
			}
			mu.Lock()
			total += n
			mu.Unlock()
		}
	}
	for _, s := range stores {
		group.Go(func() { summarise(s) })
	}
	group.Wait()
	summarise(stores[0])
	return total
}

// blocksOf lists the blocks as "after-last".
func blocksOf(t *testing.T, db *sql.DB) (list []string) {
	t.Helper()
	rows, err := db.Query("SELECT after_id, last_id FROM cache_outbox_summaries WHERE bucket = 254 ORDER BY last_id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var after, last int
		if err := rows.Scan(&after, &last); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%d-%d", after, last))
	}
	return list
}

// search lists the rows found, newest first, as "row entity id".
func search(t *testing.T, s *store.Store, q store.JournalQuery) (found []string) {
	t.Helper()
	err := s.Journal.SearchJournal(t.Context(), q, func(b store.Batch, entries []store.JournalEntry) bool {
		for _, e := range entries {
			found = append(found, fmt.Sprintln(b.ID, e.ID, e.Entity, e.EntityID))
		}
		return true
	}, func(b store.DamagedBatch) { found = append(found, fmt.Sprintln(b.ID, "damaged")) })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// matching returns the expected result of a search of batches whose IDs count from first.
func matching(batches [][]store.JournalEntry, first int, wanted func(store.JournalEntry) bool) (found []string) {
	for i, batch := range slices.Backward(batches) {
		for _, e := range batch {
			if wanted(e) {
				found = append(found, fmt.Sprintln(first+i, e.ID, e.Entity, e.EntityID))
			}
		}
	}
	return found
}

func reaches(e store.JournalEntry, key string) bool {
	return slices.Contains(e.Keys, key) || slices.Contains(e.Sets, key) || slices.ContainsFunc(e.Patterns, func(p string) bool {
		g, err := protocol.CompileGlob(p)
		return err == nil && g.Match(key)
	})
}

// A search finds the same rows as reading everything, no matter what is summarized: nothing, all
// except the newest batches, or the rest after blocks are lost. Several processes summarize, and
// none summarizes a batch twice.
func TestSearchFindsWhatTheJournalHas(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s, others := storetest.Open(t, env.DSN), []*store.Store{storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)}
	all := append(others, s)
	for _, s := range all {
		s.Summaries.SmallBlocks(20)
	}
	batches := shopBatches(1, 130)
	writeJournal(t, env.DB, time.Hour, batches...)

	check := func(state string) {
		t.Helper()
		for _, q := range []store.JournalQuery{
			{Entity: "product"}, {Entity: "coupon"}, {Entity: "product", EntityID: "7"}, {Entity: "product", EntityID: "51"},
			{Key: "shop:product:9"}, {Key: "shop:all"}, {Key: "shop:list:13:x"}, {Key: "shop:list:*:x"}, {Key: "shop:list:14:x"},
			{Key: "shop:x:y"}, {Key: "shop:a"}, {Key: "tag:5"}, {Key: "tag:6"}, {Key: "x"},
			{Trace: "request-3"}, {Trace: "request-4"}, {Row: 77}, {Row: 1005}, {Row: 128}, {Row: 5000},
			{Key: "shop:all", Entity: "product", EntityID: "3"}, {Trace: "request-3", Key: "shop:list:3:"},
		} {
			want := matching(batches, 1, func(e store.JournalEntry) bool {
				return (q.Entity == "" || q.Entity == e.Entity) && (q.EntityID == "" || q.EntityID == e.EntityID) &&
					(q.Key == "" || reaches(e, q.Key)) && (q.Trace == "" || q.Trace == e.Trace) && (q.Row == 0 || q.Row == e.ID && e.Entity != "")
			})
			if got := search(t, s, q); !slices.Equal(got, want) {
				t.Errorf("%s: %+v: found %d, wanted %d: %q", state, q, len(got), len(want), got)
			}
		}
	}
	check("without summaries")
	if n := summariseAll(t, all...); n != 120 {
		t.Errorf("summarized %d batches, wanted 120", n)
	}
	if got := blocksOf(t, env.DB); len(got) != 6 || got[0] != "0-20" || got[5] != "100-120" {
		t.Errorf("blocks %v", got)
	}
	check("summarised")
	exec(t, env.DB, "DELETE FROM cache_outbox_summaries WHERE last_id IN (20, 120)")
	check("some blocks lost")
	exec(t, env.DB, "UPDATE cache_outbox_summaries SET items = 'x' WHERE last_id IN (60)")
	check("some blocks damaged")

	stopped := 0
	err := s.Journal.SearchJournal(t.Context(), store.JournalQuery{Key: "shop:all"}, func(store.Batch, []store.JournalEntry) bool {
		stopped++
		return stopped < 3
	}, nil)
	if err != nil || stopped != 3 {
		t.Errorf("stopped after %d, %v", stopped, err)
	}
	for _, q := range []store.JournalQuery{{}, {EntityID: "1"}} {
		if err := s.Journal.SearchJournal(t.Context(), q, nil, nil); err == nil {
			t.Errorf("%+v is not an error", q)
		}
	}
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

// Summarized batches are read only if the summaries point to them, which makes a search fast.
func TestSearchReadsSummaries(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	s.Summaries.SmallBlocks(20)
	writeJournal(t, env.DB, time.Hour, shopBatches(1, 45)...)
	summariseAll(t, s)
	// A search that reads one of these reports it as damaged.
	exec(t, env.DB, "UPDATE cache_outbox_journal SET body = '', hashes = '' WHERE id NOT IN (7, 21) AND id <= 40")
	for _, c := range []struct {
		q    store.JournalQuery
		want string
	}{
		{store.JournalQuery{Entity: "product", EntityID: "21"}, "21 21 product 21\n"},
		{store.JournalQuery{Key: "shop:product:21"}, "37 damaged\n27 damaged\n21 21 product 21\n17 damaged\n"}, // a pattern begins with shop:
		{store.JournalQuery{Key: "tag:6"}, ""},
		{store.JournalQuery{Trace: "request-3"}, "33 damaged\n3 damaged\n"},
	} {
		if got := strings.Join(search(t, s, c.q), ""); got != c.want {
			t.Errorf("%+v: %q, wanted %q", c.q, got, c.want)
		}
	}
}

// A block is closed only when no further batch can come into it: not while a batch with a lower ID
// is uncommitted, and not soon after an ID that has no batch. Batches that commit late are found,
// before and after.
func TestSummariesWaitForLateCommits(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	s.Summaries.SmallBlocks(10)
	late, err := env.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback() }() // no effect after Commit
	summarise := func(want int, blocks ...string) {
		t.Helper()
		if n := summariseAll(t, s); n != want {
			t.Errorf("summarized %d batches, wanted %d", n, want)
		}
		if got := blocksOf(t, env.DB); !slices.Equal(got, blocks) {
			t.Errorf("blocks %v, wanted %v", got, blocks)
		}
	}
	found := func(q store.JournalQuery, want string) {
		t.Helper()
		if got := strings.Join(search(t, s, q), ""); got != want {
			t.Errorf("%+v: found %q, wanted %q", q, got, want)
		}
	}
	one := func(id uint64) []store.JournalEntry {
		return []store.JournalEntry{{ID: id, Entity: "late", EntityID: fmt.Sprint(id), Keys: []string{fmt.Sprint("late:", id)}}}
	}
	writeJournal(t, env.DB, time.Hour, shopBatches(1, 5)...)
	writeJournal(t, late, time.Hour, one(1)) // ID 6, not committed
	writeJournal(t, env.DB, time.Hour, shopBatches(7, 14)...)
	summarise(0)
	found(store.JournalQuery{Key: "late:1"}, "")
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	found(store.JournalQuery{Key: "late:1"}, "6 1 late 1\n")
	summarise(20, "0-10", "10-20")
	found(store.JournalQuery{Key: "late:1"}, "6 1 late 1\n")

	// ID 23 is assigned and has no batch.
	writeJournal(t, env.DB, 0, shopBatches(21, 2)...)
	exec(t, env.DB, "ALTER TABLE cache_outbox_journal AUTO_INCREMENT = 24")
	writeJournal(t, env.DB, 0, shopBatches(24, 12)...)
	summarise(0, "0-10", "10-20")
	exec(t, env.DB, "INSERT INTO cache_outbox_journal (id, worker, row_count, map_version, hashes, body) SELECT 23, worker, row_count, map_version, hashes, body FROM cache_outbox_journal WHERE id = 6")
	summarise(10, "0-10", "10-20", "20-30")
	found(store.JournalQuery{Key: "late:1"}, "23 1 late 1\n6 1 late 1\n")

	// ID 36 is assigned and rolled back.
	exec(t, env.DB, "ALTER TABLE cache_outbox_journal AUTO_INCREMENT = 37")
	writeJournal(t, env.DB, 0, shopBatches(37, 5)...)
	summarise(0, "0-10", "10-20", "20-30")
	exec(t, env.DB, "UPDATE cache_outbox_journal SET settled_at = settled_at - INTERVAL 59 SECOND WHERE id = 37")
	summarise(0, "0-10", "10-20", "20-30")
	exec(t, env.DB, "UPDATE cache_outbox_journal SET settled_at = settled_at - INTERVAL 1 SECOND WHERE id = 37")
	summarise(10, "0-10", "10-20", "20-30", "30-41")

	// A process summarizes, and crashes.
	writeJournal(t, env.DB, time.Hour, shopBatches(42, 10)...)
	dying, err := env.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"SELECT last_id FROM cache_outbox_summaries WHERE bucket = 255 FOR UPDATE",
		"INSERT INTO cache_outbox_summaries (bucket, last_id, after_id, settled_at, items) SELECT bucket, 51, 41, settled_at, items FROM cache_outbox_summaries WHERE last_id = 41"} {
		if _, err := dying.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	summarise(0, "0-10", "10-20", "20-30", "30-41")
	if err := dying.Rollback(); err != nil {
		t.Fatal(err)
	}
	summarise(10, "0-10", "10-20", "20-30", "30-41", "41-51")

	// The IDs have a large gap, which is searched.
	exec(t, env.DB, "ALTER TABLE cache_outbox_journal AUTO_INCREMENT = 10000000000")
	writeJournal(t, env.DB, time.Hour, append(shopBatches(1, 10), one(2))...)
	summarise(10, "0-10", "10-20", "20-30", "30-41", "41-51", "9999999999-10000000009")
	found(store.JournalQuery{Key: "late:1"}, "23 1 late 1\n6 1 late 1\n")
	found(store.JournalQuery{Row: 2, Entity: "late"}, "10000000010 2 late 2\n")
}

// Summaries are deleted with their batches, never before them. They never apply to other batches,
// not even if the journal was emptied and its IDs started over.
func TestSummariesGoWithTheJournal(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	s.Summaries.SmallBlocks(10)
	writeJournal(t, env.DB, 3*time.Hour, shopBatches(1, 25)...)
	writeJournal(t, env.DB, time.Hour, shopBatches(26, 15)...)
	summariseAll(t, s)
	expire := func(retention time.Duration, chunk int, want ...string) {
		t.Helper()
		if _, err := s.Journal.ExpireJournal(t.Context(), retention, chunk); err != nil {
			t.Fatal(err)
		}
		if err := s.Summaries.ExpireSummaries(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := blocksOf(t, env.DB); !slices.Equal(got, want) {
			t.Errorf("blocks %v, wanted %v", got, want)
		}
	}
	expire(4*time.Hour, 500, "0-10", "10-20", "20-30", "30-40")
	expire(2*time.Hour, 500, "20-30", "30-40")
	for _, key := range []string{"shop:product:26", "shop:product:34"} {
		if got := search(t, s, store.JournalQuery{Key: key}); len(got) != 1 {
			t.Errorf("%s: %q", key, got)
		}
	}
	exec(t, env.DB, "TRUNCATE TABLE cache_outbox_journal")
	writeJournal(t, env.DB, time.Hour, shopBatches(101, 45)...)
	for _, state := range []string{"at once", "summarised"} {
		for _, i := range []int{0, 9, 11, 39, 41, 44} {
			if got := search(t, s, store.JournalQuery{Row: uint64(101 + i)}); len(got) != 1 {
				t.Errorf("%s: row %d: %q", state, 101+i, got)
			}
		}
		summariseAll(t, s)
	}
	expire(2*time.Hour, 500, "0-10", "10-20", "20-30", "30-40")
	expire(time.Minute, 7)
	var left int
	if err := env.DB.QueryRow("SELECT COUNT(*) FROM cache_outbox_summaries").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d rows left, %v; wanted the row of the turn", left, err)
	}
	if n, err := s.Summaries.Summarise(t.Context()); n != 0 || err != nil {
		t.Errorf("of an empty journal: %d, %v", n, err)
	}
}

// A batch that cannot be unpacked is reported, whether it is summarized or not. Only batches within
// the time are reported.
func TestSearchByTimeAndDamage(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	s.Summaries.SmallBlocks(10)
	writeJournal(t, env.DB, 3*time.Hour, shopBatches(1, 10)...)
	writeJournal(t, env.DB, time.Hour, shopBatches(11, 15)...)
	exec(t, env.DB, "UPDATE cache_outbox_journal SET body = 'x' WHERE id IN (5, 15, 24)")
	for _, state := range []string{"open", "summarised"} {
		for _, c := range []struct {
			q    store.JournalQuery
			want string
		}{
			{store.JournalQuery{Key: "none"}, "24 damaged\n15 damaged\n5 damaged\n"},
			{store.JournalQuery{Key: "none", Since: 2 * time.Hour}, "24 damaged\n15 damaged\n"},
			{store.JournalQuery{Entity: "product", EntityID: "22", Since: 2 * time.Hour}, "22 22 product 22\n"},
			{store.JournalQuery{Entity: "product", EntityID: "2", Since: 2 * time.Hour}, ""},
			{store.JournalQuery{Entity: "product", EntityID: "2"}, "2 2 product 2\n"},
			{store.JournalQuery{Entity: "product", EntityID: "5"}, "5 damaged\n"},
		} {
			if got := strings.Join(search(t, s, c.q), ""); got != c.want {
				t.Errorf("%s: %+v: %q, wanted %q", state, c.q, got, c.want)
			}
		}
		summariseAll(t, s)
	}
	if err := s.Journal.SearchJournal(t.Context(), store.JournalQuery{Key: "k", EntityID: "1"}, nil, nil); err == nil || errors.Is(err, sql.ErrNoRows) {
		t.Errorf("got %v", err)
	}
}
