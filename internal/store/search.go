package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/protocol"
)

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
	if err := q.check(); err != nil {
		return err
	}
	r := &search{journal: j, q: &q, glob: map[string]protocol.Glob{}, visit: visit, damaged: damaged}
	if q.Since > 0 {
		if err := j.db.Side.GetContext(ctx, &r.since, journalSinceSQL, q.Since.Microseconds()); err != nil {
			return fmt.Errorf("search journal: %w", err)
		}
	}
	if err := r.run(ctx); err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("search journal: %w", err)
	}
	if q.Searched != nil {
		q.Searched(r.alone)
	}
	return nil
}

// run searches from the newest batch to the oldest. Batches with IDs up to and including left are
// left.
func (r *search) run(ctx context.Context) error {
	in := r.q.places()
	left, before := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for {
		blocks, err := r.blocks(ctx, before, in)
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

// blocks reads the blocks before an ID, newest first.
func (r *search) blocks(ctx context.Context, before uint64, in [2]place) (blocks []foundBlock, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.journal.db.Config.StatementTimeout)
	defer cancel()
	err = r.journal.db.Side.SelectContext(ctx, &blocks, searchBlocksSQL, in[0].bucket, in[1].bucket, before, searchBlocks)
	return blocks, err
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
		var found struct {
			Batch
			Packed []byte `db:"journey"`
			Body   []byte `db:"body"`
		}
		if err := rows.StructScan(&found); err != nil {
			return err
		}
		met(&found.Batch)
		if err := r.look(&found.Batch, found.Body, found.Packed); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *search) look(b *Batch, body, journey []byte) error {
	if r.isOver(b.SettledAt) {
		return errEnough
	}
	if body == nil || b.SettledAt.Before(r.since) {
		return nil
	}
	entries, err := DecodeEntries(body)
	if err != nil {
		r.damaged(DamagedBatch{*b, err})
		return nil
	}
	b.Journey = readJourney(journey, entries)
	var wanted []JournalEntry
	for i := range entries {
		if r.q.matches(&entries[i]) && r.reaches(&entries[i]) {
			wanted = append(wanted, entries[i])
		}
	}
	if len(wanted) > 0 && !r.visit(*b, wanted) {
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

// check returns an error if the query has no condition, or an EntityID without an Entity.
func (q *JournalQuery) check() error {
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
