package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/registry"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// tellDatabase publishes in Redis, every five seconds until ctx ends, which database the worker
// serves, and reports conflicts with others. tellRedis reports missing ACL permissions.
func (w *engine) tellDatabase(ctx context.Context) {
	if w.board == nil {
		return
	}
	var told []store.Conflict
	for {
		list, err := w.attemptDatabase(ctx)
		pause := registry.DatabasePeriod
		var outage *keyspace.Outage
		switch {
		case err != nil && ctx.Err() == nil:
			w.log.Debug("cannot publish the database in redis", "error", err)
			if errors.As(err, &outage) && outage.State == keyspace.StateNoPerm {
				pause = deniedPause
			}
		case err == nil:
			w.reportConflicts(told, list)
			told = list
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (w *engine) attemptDatabase(ctx context.Context) ([]store.Conflict, error) {
	ctx, cancel := context.WithTimeout(ctx, boardLimit)
	defer cancel()
	source := w.source.get()
	if source == "" { // MySQL has not told it yet
		return nil, nil
	}
	place, err := w.store.Place(ctx)
	if err != nil {
		return nil, err
	}
	d := registry.Database{Source: source, Server: place.Server, Schema: place.Schema, Names: namesOf(w.maps.Map())}
	return registry.PostDatabase(ctx, w.board, d, w.store.LastBatch)
}

// maxNames bounds what a worker publishes of the names of its map.
const maxNames = 1000

// namesOf returns the globs of a map, each once.
func namesOf(m *invalidation.Map) (list []string) {
	for _, n := range m.Names() {
		list = append(list, n.Glob)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), maxNames)]
}

// reportConflicts sets the gauge, and reports in the log what has changed.
func (w *engine) reportConflicts(before, now []store.Conflict) {
	w.metrics.observeConflicts(now)
	for _, c := range now {
		if !slices.Contains(before, c) {
			w.log.Warn("databases conflict in redis", "kind", c.Kind, "conflict", c.Text, "cure", c.Cure)
		}
	}
	if len(now) == 0 && len(before) > 0 {
		w.log.Info("databases do not conflict in redis any more")
	}
}

// observeConflicts sets the gauge of conflicts.
func (m *metrics) observeConflicts(list []store.Conflict) {
	for _, kind := range store.ConflictKinds {
		n := 0
		for _, c := range list {
			if c.Kind == kind {
				n++
			}
		}
		m.conflicts.WithLabelValues(string(kind)).Set(float64(n))
	}
}
