package worker

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// unknownEntity is the label of rows whose entity is not in the map: text of an application must
// not become a label.
const unknownEntity = "unknown"

// entityCounts count by entity: those of the map in use, each from the start, unknown ones, and
// reserved ones. Safe for concurrent use.
type entityCounts struct {
	vec *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]prometheus.Counter
}

// set keeps the series of a map's entities, and no others.
func (e *entityCounts) set(m *invalidation.Map) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[string]prometheus.Counter{unknownEntity: e.vec.WithLabelValues(unknownEntity)}
	for _, entity := range m.Entities() {
		known[entity] = e.vec.WithLabelValues(entity)
	}
	for entity, counter := range e.known {
		if invalidation.IsReserved(entity) {
			known[entity] = counter
		} else if known[entity] == nil {
			e.vec.DeleteLabelValues(entity)
		}
	}
	e.known = known
}

// addRows counts rows.
func (e *entityCounts) addRows(rows []store.ClaimedRow) {
	for i := 0; i < len(rows); {
		entity, first := rows[i].Entity, i
		for i < len(rows) && rows[i].Entity == entity { // mostly of one transaction
			i++
		}
		e.add(entity, i-first)
	}
}

// add adds n. A batch that was expanded by the map before may have entities that are gone since.
func (e *entityCounts) add(entity string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	counter := e.known[entity]
	switch {
	case counter != nil:
	case invalidation.IsReserved(entity): // few rows, so there is no series before the first
		counter = e.vec.WithLabelValues(entity)
		e.known[entity] = counter
	default:
		counter = e.known[unknownEntity]
	}
	counter.Add(float64(n))
}
