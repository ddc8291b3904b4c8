package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A JournalQuery says which batches of the journal to read.
type JournalQuery struct {
	// Since is how long ago, by the database's clock, the oldest batch was settled. Zero: as far as the journal
	// reaches.
	Since time.Duration
	// Entity and EntityID leave out the batches that have no row of them, and the other rows of those that have. Empty:
	// any. An EntityID needs an Entity.
	Entity, EntityID string

	// What follows is heeded by SearchJournal alone.

	Key   string // only what has unlinked this key, by name or by a pattern, or an index set of this name. Empty: any
	Trace string // only rows with it. Empty: any
	Row   uint64 // only the row with this id in cache_outbox. 0: any

	// Unsummarised is called, with the server's refusal, where the account may not read the summaries; then all batches are
	// searched, which takes seconds a million. Nil: the search fails.
	Unsummarised func(error)
	// Searched is called at the end with how many batches no summary had, so each was read. Nil: it is not called.
	Searched func(batches int)
}

// matches reports whether the query is about an entry, its key left aside. Finished sweeps belong to no entity, and
// their ids are those of requests.
func (q *JournalQuery) matches(e *Entry) bool {
	return (q.Entity == "" || q.Entity == e.Entity) && (q.EntityID == "" || q.EntityID == e.EntityID) &&
		(q.Trace == "" || q.Trace == e.Trace) && (q.Row == 0 || q.Row == e.ID && !e.IsSweep())
}

// hash is what the hashes of a batch with such a row contain, nil if there is nothing to look for.
func (q *JournalQuery) hash() []byte {
	if q.EntityID == "" {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, Hash(q.Entity, q.EntityID))
}

// A journalPlace is a batch in the order of time.
type journalPlace struct {
	ID        uint64    `db:"id"`
	SettledAt time.Time `db:"settled_at"`
	Hit       bool      `db:"hit"`
}

const journalPage = 500 // batches a statement

// Contract for all: no lock (consistent reads). The first gives the database's time; the second at most LIMIT entries
// of the index on settled_at, from a place on, and looks at the hashes in the server (four bytes that stand across two
// of them are a hit too, which unpacking corrects); the third one row by primary key.
const (
	journalSinceSQL = "SELECT UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	journalPageSQL  = `SELECT id, settled_at, ? IS NULL OR LOCATE(?, hashes) > 0 AS hit FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= ? AND (settled_at > ? OR id > ?) ORDER BY settled_at, id LIMIT ?`
	journalRowSQL = "SELECT id, worker, settled_at, row_count, map_version, born_us, body FROM cache_outbox_journal WHERE id = ?"
)

// ReadJournal calls visit with each batch that q is about, oldest first, and with those of its entries that q is about.
// It holds one batch at a time. What is settled while it reads may be left out. An error of visit ends it and is
// returned as it is. A batch that retention removes meanwhile is passed over. One that cannot be unpacked, and that q
// may be about, is passed to damaged, and the others follow.
func (s *Store) ReadJournal(ctx context.Context, q JournalQuery, visit func(Batch, []Entry) error, damaged func(DamagedBatch)) error {
	if q.EntityID != "" && q.Entity == "" {
		return errors.New("read journal: an id without an entity; name the entity as well")
	}
	var last journalPlace
	if q.Since > 0 {
		if err := s.side.GetContext(ctx, &last.SettledAt, journalSinceSQL, q.Since.Microseconds()); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
	} else {
		last.SettledAt = time.Unix(0, 0).UTC()
	}
	for {
		page, err := s.journalPage(ctx, q.hash(), last)
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		for _, p := range page {
			if !p.Hit {
				continue
			}
			if err := s.visitBatch(ctx, &q, p.ID, visit, damaged); err != nil {
				return err
			}
		}
		if len(page) < journalPage {
			return nil
		}
		last = page[len(page)-1]
	}
}

func (s *Store) journalPage(ctx context.Context, hash []byte, last journalPlace) (page []journalPlace, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	err = s.side.SelectContext(ctx, &page, journalPageSQL, hash, hash, last.SettledAt, last.SettledAt, last.ID, journalPage)
	return page, err
}

func (s *Store) visitBatch(ctx context.Context, q *JournalQuery, id uint64, visit func(Batch, []Entry) error, damaged func(DamagedBatch)) error {
	b, body, err := s.readBatch(ctx, id)
	if err != nil || b == nil {
		return err
	}
	entries, err := DecodeEntries(body)
	if err != nil {
		damaged(DamagedBatch{*b, err})
		return nil
	}
	var wanted []Entry
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

// readBatch reads one batch and its body, nil if it is gone.
func (s *Store) readBatch(ctx context.Context, id uint64) (*Batch, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var found []struct {
		Batch
		Body []byte `db:"body"`
	}
	if err := s.side.SelectContext(ctx, &found, journalRowSQL, id); err != nil {
		return nil, nil, fmt.Errorf("read batch %d of the journal: %w", id, err)
	}
	if len(found) == 0 {
		return nil, nil, nil
	}
	return &found[0].Batch, found[0].Body, nil
}

// Contract: no lock, one entry of the index on settled_at.
const journalStartSQL = "SELECT settled_at FROM cache_outbox_journal FORCE INDEX (settled) ORDER BY settled_at LIMIT 1"

// JournalStart is when the oldest batch of the journal was settled, nil if there is none.
func (s *Store) JournalStart(ctx context.Context) (*time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var found []time.Time
	if err := s.side.SelectContext(ctx, &found, journalStartSQL); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}
