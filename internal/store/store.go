package store

import (
	"crypto/rand"

	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/lockrows"
	"github.com/unstale/unstale/internal/minutes"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/queue"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/staleentries"
	"github.com/unstale/unstale/internal/sweeps"
)

// A Store has all parts of an outbox, on the same sessions. A service takes the part that it needs.
type Store struct {
	ID        string // random, of the worker that uses it
	Sessions  *session.Sessions
	Lookups   *session.Lookups
	Queue     *queue.Queue
	Minutes   *minutes.Table
	Journal   *journal.Journal
	Summaries *journal.Summaries
	Sweeps    *sweeps.Table
	Orders    *operate.Orders
	Overview  *operate.Overview
	Workers   *operate.Workers
	Locks     *lockrows.Table
	Stale     *staleentries.Table
}

// Open checks cfg and returns a Store. It does not connect.
func Open(cfg session.Config) (*Store, error) {
	db, err := session.Open(cfg, queue.Prepared()...)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	counts := minutes.New(db, id)
	return &Store{
		ID: id, Sessions: db, Lookups: session.NewLookups(db), Queue: queue.New(db, counts), Minutes: counts, Journal: journal.New(db), Summaries: journal.NewSummaries(db),
		Sweeps: sweeps.New(db), Orders: operate.NewOrders(db), Overview: operate.NewOverview(db), Workers: operate.NewWorkers(db), Locks: lockrows.New(db), Stale: staleentries.New(db),
	}, nil
}

// Close closes all pools. A claim that is still open is rolled back by the server.
func (s *Store) Close() error { return s.Sessions.Close() }
