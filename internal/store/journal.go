package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"
)

// An Entry is what the journal keeps of one settled row, or of one finished sweep: see IsSweep.
type Entry struct {
	ID       uint64 // in cache_outbox, where the row began; 0 if it never was there; of a sweep, its own
	Entity   string // empty for a sweep
	EntityID string
	Trace    string
	Keys     []string
	Patterns []string
	Sets     []string
	// HoldMillis is for how long the keys were held; of a sweep, what it finds.
	HoldMillis int64
	// WrittenMicros is when the row was inserted, by the database's clock, in microseconds since 1970; 0: not known. It is in
	// the batch's journey, which SearchJournal alone reads.
	WrittenMicros int64
	// Partial is set if the row was not settled: its lookup had failed, and this is the part of its plan
	// that needs no lookup.
	Partial bool
}

// Contract: appends one row; takes no lock that another insert waits for. What is binary travels as text, since MySQL
// lists no statements at all while one of them is not UTF-8 (3854).
const journalSQL = `INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, born_us, hashes, body, journey)
VALUES (?,?,?,?,?,?,FROM_BASE64(?),FROM_BASE64(?),FROM_BASE64(?))`

// IsSweep reports whether the entry is about a finished sweep and not about a row, which has an entity.
func (e *Entry) IsSweep() bool { return e.Entity == "" }

// journal writes the batch in the claim's transaction: one row of the journal, or several where it has many names.
func (c *Claim) journal(ctx context.Context, s Settlement) error {
	for entries := s.Journal; len(entries) > 0; {
		var part []Entry
		part, entries = journalPart(entries)
		body, err := EncodeEntries(part)
		if err != nil {
			return err
		}
		args := c.store.record(len(part), s.MapVersion, s.Position, s.Born, hashes(part), body, s.Marks.journey(part))
		if _, err := c.exec(ctx, journalSQL, base64.StdEncoding.EncodedLen(len(body)), args...); err != nil {
			return err
		}
	}
	return nil
}

// record is what journalSQL takes.
func (s *Store) record(rows int, mapVersion string, position Position, born uint64, hashes, body, journey []byte) []any {
	text := base64.StdEncoding.EncodeToString
	args := []any{s.cfg.Worker, rows, mapVersion, position.Epoch, position.N, born, text(hashes), text(body), nil}
	if journey != nil {
		args[len(args)-1] = text(journey)
	}
	return args
}

// Contract: exclusive locks on at most the rows that it deletes, found by the index on settled_at; oldest first.
// Repeating it deletes the next ones.
const expireSQL = `DELETE FROM cache_outbox_journal
WHERE settled_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY settled_at LIMIT ?`

// ExpireJournal deletes journal rows older than retention, at most chunk rows a statement, until none is left or ctx
// ends, and returns how many. Safe to run in several workers at once: they share the work.
func (s *Store) ExpireJournal(ctx context.Context, retention time.Duration, chunk int) (deleted int64, err error) {
	for {
		n, err := s.expire(ctx, retention, chunk)
		deleted += n
		if err != nil || n < int64(chunk) {
			return deleted, err
		}
	}
}

func (s *Store) expire(ctx context.Context, retention time.Duration, chunk int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	res, err := s.side.ExecContext(ctx, expireSQL, retention.Microseconds(), chunk)
	if err != nil {
		return 0, fmt.Errorf("expire journal: %w", err)
	}
	return res.RowsAffected()
}

// Hold is HoldMillis.
func (e *Entry) Hold() time.Duration { return time.Duration(e.HoldMillis) * time.Millisecond }

// Names is how many keys, patterns and sets the entry has.
func (e *Entry) Names() int { return len(e.Keys) + len(e.Patterns) + len(e.Sets) }

// Bytes is how many bytes the keys, patterns and sets of the entry have.
func (e *Entry) Bytes() (n int) {
	for _, list := range [...][]string{e.Keys, e.Patterns, e.Sets} {
		for _, name := range list {
			n += len(name)
		}
	}
	return n
}
