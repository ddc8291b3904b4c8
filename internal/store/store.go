package store

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/unstale/unstale/internal/session"
)

// A Store has all parts of an outbox, on the same sessions. A service takes the part that it needs.
type Store struct {
	ID        string // random, of the worker that uses it
	Sessions  *session.Sessions
	Lookups   *session.Lookups
	Queue     *Queue
	Minutes   *Minutes
	Journal   *Journal
	Summaries *Summaries
	Sweeps    *Sweeps
	Actions   *Actions
	Overview  *Overview
	Workers   *Workers
	Locks     *LockRows
	Stale     *StaleEntries
}

// Open checks cfg and returns a Store. It does not connect.
func Open(cfg session.Config) (*Store, error) {
	db, err := session.Open(cfg, Prepared()...)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	counts := NewMinutes(db, id)
	return &Store{
		ID: id, Sessions: db, Lookups: session.NewLookups(db), Queue: NewQueue(db, counts), Minutes: counts, Journal: NewJournal(db), Summaries: NewSummaries(db),
		Sweeps: NewSweeps(db), Actions: NewActions(db), Overview: NewOverview(db), Workers: NewWorkers(db), Locks: NewLockRows(db), Stale: NewStaleEntries(db),
	}, nil
}

// Close closes all pools. A claim that is still open is rolled back by the server.
func (s *Store) Close() error { return s.Sessions.Close() }

// jsonText returns the JSON of numbers and texts, which cannot fail.
func jsonText(list any) string {
	text, _ := json.Marshal(list)
	return string(text)
}

// tuples returns the VALUES of n rows.
func tuples(row string, n int) string { return strings.Repeat(row+",", n-1) + row }
