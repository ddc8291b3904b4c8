package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

// A JournalQuery selects batches of the journal.
type JournalQuery struct {
	// Since is the maximum age of a batch, by the database's clock. Zero: as far as the journal
	// reaches.
	Since time.Duration
	At    time.Time // UTC, from which ReadJournal counts Since; zero: now
	// Entity and EntityID leave out the batches without a row of that entity, and the other rows of
	// batches with one. Empty: any. An EntityID needs an Entity.
	Entity, EntityID string

	// Only SearchJournal uses the fields below.

	// only batches that unlinked this key, by name or by a pattern, or an index set of this name.
	// Empty: any
	Key   string
	Trace string // only rows with this trace. Empty: any
	Row   uint64 // only the row with this ID in cache_outbox. 0: any

	// Unsummarised is called with the server's error if the account may not read the summaries.
	// Then all batches are searched, which takes seconds per million. Nil: the search fails.
	Unsummarised func(error)
	// Searched is called at the end with the number of batches that were read because no summary
	// covers them. Nil: it is not called.
	Searched func(batches int)
}

// matches reports whether an entry matches the query, except for its key. Finished sweeps belong to
// no entity, and their IDs are IDs of requests.
func (q *JournalQuery) matches(e *JournalEntry) bool {
	return (q.Entity == "" || q.Entity == e.Entity) && (q.EntityID == "" || q.EntityID == e.EntityID) &&
		(q.Trace == "" || q.Trace == e.Trace) && (q.Row == 0 || q.Row == e.ID && !e.IsSweep())
}

// hash returns the bytes that the hashes of a batch with such a row contain, or nil if the query
// has no EntityID.
func (q *JournalQuery) hash() []byte {
	if q.EntityID == "" {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, Hash(q.Entity, q.EntityID))
}

// A journalPlace is a batch in order of time.
type journalPlace struct {
	ID        uint64    `db:"id"`
	SettledAt time.Time `db:"settled_at"`
	Hit       bool      `db:"hit"`
}

const journalPage = 500 // batches per statement

// Contract for all: no lock (consistent reads). The first returns the database's time. The second
// returns at most LIMIT entries of the index on settled_at, from a place on, and compares the
// hashes in the server. Four bytes across two hashes match too, which unpacking corrects. The third
// returns one row by primary key.
const (
	journalSinceSQL = "SELECT UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	journalPageSQL  = `SELECT id, settled_at, ? IS NULL OR LOCATE(?, hashes) > 0 AS hit FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= ? AND (settled_at > ? OR id > ?) ORDER BY settled_at, id LIMIT ?`
	journalRowSQL = "SELECT id, worker, settled_at, row_count, map_version, born_us, body FROM cache_outbox_journal WHERE id = ?"
)

// ReadJournal calls visit with each batch that matches q, oldest first, and with its matching
// entries. It has one batch in memory at a time. It may leave out batches that are settled
// meanwhile, and skips batches that retention deletes meanwhile. It returns an error of visit
// unchanged. If a batch that may match q cannot be unpacked, ReadJournal passes it to damaged and
// continues.
func (j *Journal) ReadJournal(ctx context.Context, q JournalQuery, visit func(Batch, []JournalEntry) error, damaged func(DamagedBatch)) error {
	if q.EntityID != "" && q.Entity == "" {
		return errors.New("read journal: an id without an entity; name the entity as well")
	}
	var last journalPlace
	switch {
	case q.Since > 0 && !q.At.IsZero():
		last.SettledAt = q.At.Add(-q.Since)
	case q.Since > 0:
		if err := j.db.ReadRow(ctx, &last.SettledAt, journalSinceSQL, q.Since.Microseconds()); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
	default:
		last.SettledAt = time.Unix(0, 0).UTC()
	}
	for hash := q.hash(); ; {
		var page []journalPlace
		err := j.db.ReadRows(ctx, &page, journalPageSQL, hash, hash, last.SettledAt, last.SettledAt, last.ID, journalPage)
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		for _, p := range page {
			if !p.Hit {
				continue
			}
			if err := j.visitBatch(ctx, &q, p.ID, visit, damaged); err != nil {
				return err
			}
		}
		if len(page) < journalPage {
			return nil
		}
		last = page[len(page)-1]
	}
}

func (j *Journal) visitBatch(ctx context.Context, q *JournalQuery, id uint64, visit func(Batch, []JournalEntry) error, damaged func(DamagedBatch)) error {
	row, err := session.FindRow[journalRow](ctx, j.db, journalRowSQL, id)
	if row == nil { // retention has deleted it meanwhile
		return dberr.Wrap(err, fmt.Sprintf("read batch %d of the journal", id))
	}
	entries, err := DecodeEntries(row.Body)
	if err != nil {
		damaged(DamagedBatch{row.Batch, err})
		return nil
	}
	entries = slices.DeleteFunc(entries, func(e JournalEntry) bool { return !q.matches(&e) })
	if len(entries) == 0 {
		return nil
	}
	return visit(row.Batch, entries)
}

// A journalRow is a row of the journal, as far as a query reads it.
type journalRow struct {
	Batch
	Packed []byte `db:"journey"`
	Body   []byte `db:"body"`
}

// Contract: no lock, one entry of the index on settled_at.
const journalStartSQL = "SELECT settled_at FROM cache_outbox_journal FORCE INDEX (settled) ORDER BY settled_at LIMIT 1"

// JournalStart returns when the oldest batch of the journal was settled, or nil if there is none.
func (j *Journal) JournalStart(ctx context.Context) (*time.Time, error) {
	start, err := session.FindRow[time.Time](ctx, j.db, journalStartSQL)
	return start, dberr.Wrap(err, "read journal")
}

// A Mark identifies a batch as long as the database has it: unlike its position, healing does not
// change it.
type Mark struct {
	ID  uint64 `json:"id"`
	Sum uint32 `json:"sum"` // of its timeline; 0: unknown
}

// Contract: no lock (one consistent read); rows by primary key: those listed, the oldest and the
// newest.
const lostSQL = `SELECT COALESCE(n.id, 0) AS id, COALESCE(CRC32(COALESCE(n.journey, n.settled_at)), 0) AS sum, COALESCE((SELECT MIN(j.id)
  FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.id', sum BIGINT PATH '$.sum')) AS j LEFT JOIN cache_outbox_journal AS o FORCE INDEX (PRIMARY) ON o.id = j.id
  WHERE o.id IS NULL AND j.id > e.oldest OR j.sum > 0 AND j.sum <> CRC32(COALESCE(o.journey, o.settled_at))), 0) AS lost
FROM (SELECT MIN(id) AS oldest, MAX(id) AS newest FROM cache_outbox_journal) AS e
LEFT JOIN cache_outbox_journal AS n FORCE INDEX (PRIMARY) ON n.id = e.newest`

// lostTries is how often Lost looks for a batch, over two seconds.
const lostTries = 5

// Lost returns the lowest ID of the batches that a journal had and has lost, and its newest batch.
// Both are zero if there is none. A batch is lost if another one has its ID, or if it is gone and
// an older one is not: retention deletes the older ones first. So an empty journal has lost
// nothing. Lost looks several times, because a node of a cluster, or a replica that still applies
// its log, may get a batch later.
func Lost(ctx context.Context, db sqlx.QueryerContext, had []Mark) (lost uint64, newest Mark, err error) {
	list := jsonText(had)
	for try := 0; err == nil && (try == 0 || lost > 0 && try < lostTries); try++ {
		if err = sleep.For(ctx, time.Duration(min(try, 1))*time.Second/2); err == nil {
			err = db.QueryRowxContext(ctx, lostSQL, list).Scan(&newest.ID, &newest.Sum, &lost)
		}
	}
	if err != nil {
		return 0, Mark{}, fmt.Errorf("look for batches of the journal: %w", err)
	}
	return lost, newest, nil
}

// A RecentBatch is a batch of the end of the journal.
type RecentBatch struct {
	Batch
	Entries []JournalEntry // nil: not read, because the caller knows them or the body is too large
}

// Contract: no lock (a consistent read); LIMIT rows by primary key, the newest first, and the
// bodies of those that are small and not in the list.
const recentSQL = `SELECT id, worker, settled_at, row_count, map_version, born_us, journey,
IF(LENGTH(body) <= ? AND id NOT IN (?), body, NULL) AS body FROM cache_outbox_journal FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ?`

// Recent returns the newest batches, at most limit, the newest first. It reads bodies of at most
// maxBody bytes, except for known batches. It leaves the entries of a batch that cannot
// be unpacked nil.
func (j *Journal) Recent(ctx context.Context, limit, maxBody int, known []uint64) ([]RecentBatch, error) {
	query, args, err := sqlx.In(recentSQL, maxBody, append([]uint64{0}, known...), limit)
	if err != nil {
		return nil, err
	}
	var rows []journalRow
	if err := j.db.ReadRows(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("read the end of the journal: %w", err)
	}
	list := make([]RecentBatch, len(rows))
	for i := range rows {
		r := &rows[i]
		list[i].Batch = r.Batch
		if r.Body == nil {
			continue
		}
		if list[i].Entries, err = DecodeEntries(r.Body); err == nil {
			list[i].Journey = readJourney(r.Packed, list[i].Entries)
		}
	}
	return list, nil
}

const (
	searchBlocks  = 32  // per statement
	searchBatches = 500 // per statement, of batches outside of all blocks
	searchBodies  = 50  // per statement, of batches that may match
)

// clockSlack is how far the order of the batches' times may differ from the order of their IDs.
const clockSlack = 10 * time.Minute

// Contract for all: no lock (consistent reads), LIMIT rows or those listed, by primary key, newest
// first. The first reads blocks with the rows of at most two buckets, and whether each block still
// ends with the batch that was summarized, in one snapshot. The others read the whole batch only if
// its hashes contain the entity: see journalPageSQL.
const (
	searchBlocksSQL = `SELECT h.last_id, h.after_id, h.settled_at, h.items AS head, a.items AS first, b.items AS second,
EXISTS (SELECT 1 FROM cache_outbox_journal AS j WHERE j.id = h.last_id AND j.settled_at = h.settled_at) AS live
FROM cache_outbox_summaries AS h
LEFT JOIN cache_outbox_summaries AS a ON a.bucket = ? AND a.last_id = h.last_id
LEFT JOIN cache_outbox_summaries AS b ON b.bucket = ? AND b.last_id = h.last_id
WHERE h.bucket = 254 AND h.last_id < ? ORDER BY h.last_id DESC LIMIT ?`
	searchRangeSQL = `SELECT id, worker, settled_at, row_count, map_version, born_us, journey, IF(? IS NULL OR LOCATE(?, hashes) > 0, body, NULL) AS body
FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT ?`
	searchBodiesSQL = `SELECT id, worker, settled_at, row_count, map_version, born_us, journey, IF(? IS NULL OR LOCATE(?, hashes) > 0, body, NULL) AS body
FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id IN (?) ORDER BY id DESC`
)

// errEnough ends a search.
var errEnough = errors.New("enough")

// A search is the state of a running search.
type search struct {
	journal *Journal
	q       *JournalQuery
	glob    map[string]protocol.Glob // patterns compiled so far
	since   time.Time                // zero: as far as the journal reaches
	visit   func(Batch, []JournalEntry) bool
	damaged func(DamagedBatch)
	alone   int // batches without a summary
}

// SearchJournal calls visit with each batch that matches q, newest first, and with its matching
// entries, until visit returns false. It reads the summaries, the batches that may match according
// to them, and the batches outside of all blocks. It may leave out batches that are settled during
// the search. If a batch that may match q cannot be unpacked, it is passed to damaged. Neither
// function may query MySQL.
func (j *Journal) SearchJournal(ctx context.Context, q JournalQuery, visit func(Batch, []JournalEntry) bool, damaged func(DamagedBatch)) error {
	if err := q.validate(); err != nil {
		return err
	}
	r := &search{journal: j, q: &q, glob: map[string]protocol.Glob{}, visit: visit, damaged: damaged}
	if q.Since > 0 {
		if err := j.db.ReadRow(ctx, &r.since, journalSinceSQL, q.Since.Microseconds()); err != nil {
			return fmt.Errorf("search journal: %w", err)
		}
	}
	if err := r.searchBatches(ctx); err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("search journal: %w", err)
	}
	if q.Searched != nil {
		q.Searched(r.alone)
	}
	return nil
}

// searchBatches searches from the newest batch to the oldest. Batches with IDs up to and including
// left are left.
func (r *search) searchBatches(ctx context.Context) error {
	in := r.q.places()
	left, before := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for {
		var blocks []foundBlock
		err := r.journal.db.ReadRows(ctx, &blocks, searchBlocksSQL, in[0].bucket, in[1].bucket, before, searchBlocks)
		if mysqlerr.Number(err) == mysqlerr.NoRight && r.q.Unsummarised != nil {
			r.q.Unsummarised(err)
			return r.between(ctx, 0, left)
		}
		if err != nil {
			return err
		}
		for i := range blocks {
			b := &blocks[i]
			before = b.LastID
			hits, err := b.hits(in)
			if !b.Live || err != nil || b.LastID > left {
				continue // its batches are searched like batches without a block
			}
			if err := r.between(ctx, b.LastID, left); err != nil {
				return err
			}
			if r.isOver(b.SettledAt) {
				return errEnough
			}
			for part := range slices.Chunk(hits, searchBodies) {
				if err := r.bodies(ctx, part); err != nil {
					return err
				}
			}
			left = b.AfterID
		}
		if len(blocks) < searchBlocks {
			return r.between(ctx, 0, left)
		}
	}
}

// isOver reports whether all batches before a batch of that time are too old.
func (r *search) isOver(settled time.Time) bool {
	return !r.since.IsZero() && settled.Add(clockSlack).Before(r.since)
}

// A foundBlock is a block with its rows of the requested buckets, nil if it has none.
type foundBlock struct {
	LastID    uint64    `db:"last_id"`
	AfterID   uint64    `db:"after_id"`
	SettledAt time.Time `db:"settled_at"`
	Live      bool      `db:"live"`
	Head      []byte    `db:"head"`
	First     []byte    `db:"first"`
	Second    []byte    `db:"second"`
}

// hits returns the batches that may have one of the names and the batches that could not be
// unpacked, newest first.
func (b *foundBlock) hits(in [2]place) (ids []uint64, err error) {
	hit := func(number uint64) { ids = append(ids, b.AfterID+number) }
	err = findItems(b.Head, []uint32{0}, hit)
	for i, packed := range [2][]byte{b.First, b.Second} {
		if packed != nil {
			err = errors.Join(err, findItems(packed, in[i].hashes, hit))
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	slices.Reverse(ids)
	return ids, err
}

// between searches the batches after one ID up to and including another one, without summaries.
func (r *search) between(ctx context.Context, after, upTo uint64) error {
	for after < upTo {
		n := 0
		err := r.each(ctx, func(b *Batch) { n++; upTo = b.ID - 1 },
			searchRangeSQL, r.q.hash(), r.q.hash(), after, upTo, searchBatches)
		r.alone += n
		if n < searchBatches || err != nil {
			return err
		}
	}
	return nil
}

// bodies searches batches by their IDs.
func (r *search) bodies(ctx context.Context, ids []uint64) error {
	var hash any // nil, since sqlx.In would expand an empty slice as a list
	if h := r.q.hash(); h != nil {
		hash = string(h)
	}
	query, args, err := sqlx.In(searchBodiesSQL, hash, hash, ids)
	if err != nil {
		return err
	}
	return r.each(ctx, func(*Batch) {}, query, args...)
}

// each examines the batches of a query. It holds one at a time.
func (r *search) each(ctx context.Context, met func(*Batch), query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, r.journal.db.Config.StatementTimeout)
	defer cancel()
	rows, err := r.journal.db.Side.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var found journalRow
		if err := rows.StructScan(&found); err != nil {
			return err
		}
		met(&found.Batch)
		if err := r.matchBatch(&found); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *search) matchBatch(row *journalRow) error {
	if r.isOver(row.SettledAt) {
		return errEnough
	}
	if row.Body == nil || row.SettledAt.Before(r.since) {
		return nil
	}
	entries, err := DecodeEntries(row.Body)
	if err != nil {
		r.damaged(DamagedBatch{row.Batch, err})
		return nil
	}
	row.Journey = readJourney(row.Packed, entries)
	entries = slices.DeleteFunc(entries, func(e JournalEntry) bool { return !r.q.matches(&e) || !r.reaches(&e) })
	if len(entries) > 0 && !r.visit(row.Batch, entries) {
		return errEnough
	}
	return nil
}

// reaches reports whether the entry unlinks the key that is searched for, if any: by name, by a
// pattern, or as an index set.
func (r *search) reaches(e *JournalEntry) bool {
	key := r.q.Key
	return key == "" || slices.Contains(e.Keys, key) || slices.Contains(e.Sets, key) ||
		slices.ContainsFunc(e.Patterns, func(p string) bool { return r.match(p, key) })
}

// match compiles each pattern once.
func (r *search) match(pattern, key string) bool {
	glob, known := r.glob[pattern]
	if !known {
		g, err := protocol.CompileGlob(pattern)
		if err != nil { // it matches nothing
			return false
		}
		if len(r.glob) > 10_000 {
			clear(r.glob)
		}
		glob, r.glob[pattern] = g, g
	}
	return glob.Match(key)
}

// validate returns an error if the query has no condition, or an EntityID without an Entity.
func (q *JournalQuery) validate() error {
	switch {
	case q.EntityID != "" && q.Entity == "":
		return errors.New("an id without an entity; name the entity as well")
	case q.Entity == "" && q.Key == "" && q.Trace == "" && q.Row == 0:
		return errors.New("nothing to search for")
	}
	return nil
}

// A place is where one of the conditions is looked up: sorted hashes in a bucket.
type place struct {
	bucket uint8
	hashes []uint32
}

// places returns the places of the condition that the fewest batches match. Most conditions have
// one place; the second is then empty.
func (q *JournalQuery) places() [2]place {
	at := func(n name) place { return place{n.bucket, []uint32{n.hash}} }
	nowhere := place{bucket: nowhereBucket}
	switch {
	case q.Row != 0:
		return [2]place{at(rowName(q.Row)), nowhere}
	case q.Trace != "":
		return [2]place{at(nameOf(itemTrace, q.Trace)), nowhere}
	case q.EntityID != "":
		return [2]place{at(nameOf(itemObject, q.Entity, q.EntityID)), nowhere}
	case q.Key == "":
		return [2]place{at(nameOf(itemEntity, q.Entity)), nowhere}
	}
	patterns := place{bucket: patternBucket}
	for n := range len(q.Key) + 1 {
		patterns.hashes = append(patterns.hashes, nameOf(itemPattern, q.Key[:n]).hash)
	}
	slices.Sort(patterns.hashes)
	return [2]place{at(nameOf(itemName, q.Key)), patterns}
}
