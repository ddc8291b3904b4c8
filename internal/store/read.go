package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/sleep"
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
		if err := j.db.Side.GetContext(ctx, &last.SettledAt, journalSinceSQL, q.Since.Microseconds()); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
	default:
		last.SettledAt = time.Unix(0, 0).UTC()
	}
	for {
		page, err := j.journalPage(ctx, q.hash(), last)
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

func (j *Journal) journalPage(ctx context.Context, hash []byte, last journalPlace) (page []journalPlace, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	err = j.db.Side.SelectContext(ctx, &page, journalPageSQL, hash, hash, last.SettledAt, last.SettledAt, last.ID, journalPage)
	return page, err
}

func (j *Journal) visitBatch(ctx context.Context, q *JournalQuery, id uint64, visit func(Batch, []JournalEntry) error, damaged func(DamagedBatch)) error {
	b, body, err := j.readBatch(ctx, id)
	if err != nil || b == nil {
		return err
	}
	entries, err := DecodeEntries(body)
	if err != nil {
		damaged(DamagedBatch{*b, err})
		return nil
	}
	var wanted []JournalEntry
	for i := range entries {
		if q.matches(&entries[i]) {
			wanted = append(wanted, entries[i])
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return visit(*b, wanted)
}

// readBatch reads one batch and its body, or returns nil if the batch is gone.
func (j *Journal) readBatch(ctx context.Context, id uint64) (*Batch, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	var found []struct {
		Batch
		Body []byte `db:"body"`
	}
	if err := j.db.Side.SelectContext(ctx, &found, journalRowSQL, id); err != nil {
		return nil, nil, fmt.Errorf("read batch %d of the journal: %w", id, err)
	}
	if len(found) == 0 {
		return nil, nil, nil
	}
	return &found[0].Batch, found[0].Body, nil
}

// Contract: no lock, one entry of the index on settled_at.
const journalStartSQL = "SELECT settled_at FROM cache_outbox_journal FORCE INDEX (settled) ORDER BY settled_at LIMIT 1"

// JournalStart returns when the oldest batch of the journal was settled, or nil if there is none.
func (j *Journal) JournalStart(ctx context.Context) (*time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	var found []time.Time
	if err := j.db.Side.SelectContext(ctx, &found, journalStartSQL); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
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
	list, err := json.Marshal(had)
	for try := 0; err == nil && (try == 0 || lost > 0 && try < lostTries); try++ {
		if err = sleep.For(ctx, time.Duration(min(try, 1))*time.Second/2); err == nil {
			err = db.QueryRowxContext(ctx, lostSQL, string(list)).Scan(&newest.ID, &newest.Sum, &lost)
		}
	}
	if err != nil {
		return 0, Mark{}, fmt.Errorf("look for batches of the journal: %w", err)
	}
	return lost, newest, nil
}
