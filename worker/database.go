package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A databaseStatus publishes in Redis which database the worker serves. Safe for concurrent use,
// except publishDatabase.
type databaseStatus struct {
	*base
	hashes   *keyspace.StatusHashes           // nil where the worker publishes no state
	namesCut atomic.Pointer[invalidation.Map] // whose names were last cut

	settled  chan []store.Mark // batches of this worker
	attempts sync.Mutex        // held by an attempt, which owns the rest
	known    []store.Mark      // the batches since the last attempt that read a journal
	served   string            // the field of the last record; "": none so far
}

// maxSettled is how many batches are compared with the journal. If there are more, the first ones
// are: to detect that the database has lost some, one of them is enough.
const maxSettled = 10_000

// journaled records batches that the worker has settled, for the next attempt.
func (d *databaseStatus) journaled(batches []store.Mark) {
	if d.hashes == nil { // no attempt takes them
		return
	}
	select {
	case d.settled <- batches:
	default:
	}
}

// publishDatabase publishes in Redis, every five seconds until ctx ends, which database the worker
// serves, and reports conflicts with others. redisStatus reports missing ACL permissions.
func (d *databaseStatus) publishDatabase(ctx context.Context) {
	if d.hashes == nil {
		d.State.Others.Store(&[]string{})
		return
	}
	var told []store.Conflict
	sleep.Repeat(ctx, func(ctx context.Context) (pause time.Duration) {
		list, err := d.attempt(ctx)
		pause = status.DatabasePeriod
		switch {
		case err != nil && ctx.Err() == nil:
			d.Log.Debug("cannot publish the database in redis", "error", err)
			pause = alivePeriod
			if keyspace.IsDenied(err) {
				pause = deniedPause
			}
		case err == nil:
			d.reportConflicts(told, list)
			told = list
		}
		return pause
	})
}

// first publishes the database before the worker claims rows from a MySQL that it has not used so
// far, or that was unavailable. The batches that other workers have published may have been by a
// version without sums: they reveal a restore only before the worker settles more batches.
// publishDatabase retries and reports conflicts.
func (d *databaseStatus) first(ctx context.Context) {
	if d.hashes == nil {
		return
	}
	if _, err := d.attempt(ctx); err != nil {
		d.Log.Debug("cannot publish the database in redis before the first claim", "error", err)
	}
}

func (d *databaseStatus) attempt(ctx context.Context) ([]store.Conflict, error) {
	d.attempts.Lock()
	defer d.attempts.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*statusLimit)
	defer cancel()
	outboxID, err := d.Source.Read(ctx)
	if err != nil {
		return nil, err
	}
	db, place, err := d.Store.Sessions.Primary(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	for len(d.settled) > 0 && len(d.known) < maxSettled {
		d.known = append(d.known, <-d.settled...)
	}
	var newest store.Mark
	database := status.Database{Source: outboxID, Server: place.Server, Schema: place.Schema, Names: d.names(d.maps.Map())}
	list, others, err := status.PostDatabase(ctx, d.hashes, database, d.served, func(ctx context.Context, published store.Mark) (lost uint64, _ store.Mark, err error) {
		lost, newest, err = store.Lost(ctx, db, append(d.known, published))
		return lost, newest, err
	})
	if err != nil {
		return nil, err
	}
	d.State.Others.Store(&others)
	d.served = database.Field()
	if newest.ID > 0 { // the journal may be empty while a dump is loaded
		d.known = nil
	}
	return list, nil
}

// maxNames bounds what a worker publishes of the names of its map.
const maxNames = 1000

// names returns the globs of a map, each once, and logs once per map that there are too many.
func (d *databaseStatus) names(m *invalidation.Map) (list []string) {
	for _, n := range m.Names() {
		list = append(list, n.Glob)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) <= maxNames {
		return list
	}
	if d.namesCut.Swap(m) != m {
		d.Log.Info("map has more names than are published", "map_version", m.Version(), "names", len(list), "published", maxNames,
			"effect", "shadow reads of another database on this Redis may report entries with the remaining names")
	}
	return list[:maxNames]
}

// reportConflicts sets the gauge, and reports in the log what has changed.
func (d *databaseStatus) reportConflicts(before, now []store.Conflict) {
	d.metrics.observeConflicts(now)
	for _, c := range now {
		if !slices.Contains(before, c) {
			d.Log.Warn("databases conflict in redis", "kind", c.Kind, "conflict", c.Text, "cure", c.Cure)
		}
	}
	if len(now) == 0 && len(before) > 0 {
		d.Log.Info("databases no longer conflict in redis")
	}
}
