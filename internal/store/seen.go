package store

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxEntities is how many entities of a minute are noted by name, those with the most rows. The
// others count together, under the empty name.
const MaxEntities = 50

// An Entity has the counts of the settled rows of an entity, as in Counts.
type Entity struct{ Rows, Within1s uint64 }

// Entities are counts by entity.
type Entities map[string]Entity

// Add counts a row, as [Counts.Add] does.
func (e Entities) Add(entity string, late time.Duration) {
	n := e[entity]
	n.Rows++
	if late <= time.Second {
		n.Within1s++
	}
	e[entity] = n
}

// Merge adds other counts. It does not keep the memory of their names.
func (e Entities) Merge(more Entities) {
	for entity, n := range more {
		sum, known := e[entity]
		if !known {
			entity = strings.Clone(entity)
		}
		e[entity] = Entity{sum.Rows + n.Rows, sum.Within1s + n.Within1s}
	}
}

// Sorted returns the names, those with the most rows first.
func (e Entities) Sorted() []string {
	return slices.SortedFunc(maps.Keys(e), func(a, b string) int { return cmp.Or(cmp.Compare(e[b].Rows, e[a].Rows), cmp.Compare(a, b)) })
}

// text returns the counts as JSON, nil if there are none.
func (e Entities) text() *string {
	if len(e) == 0 {
		return nil
	}
	list := map[string][2]uint64{}
	for i, name := range e.Sorted() {
		n := e[name]
		if i >= MaxEntities {
			name = ""
		}
		sum := list[name]
		list[name] = [2]uint64{sum[0] + n.Rows, sum[1] + n.Within1s}
	}
	encoded, _ := json.Marshal(list) // of texts and numbers
	text := string(encoded)
	return &text
}

// parse adds the counts of a text.
func (e Entities) parse(text string) error {
	var list map[string][2]uint64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	more := Entities{}
	for name, n := range list {
		more[name] = Entity{n[0], n[1]}
	}
	e.Merge(more)
	return nil
}

// A seenMinute has the observations of this process in a minute.
type seenMinute struct {
	looked           bool
	waiting          int
	oldest           time.Duration
	entities         Entities
	changes, written int
}

// Seen has what a process sees, by minute, until Write writes it: how many rows wait, and which
// entities are settled. It is lost if the process is killed before. Safe for concurrent use.
type Seen struct {
	table *Minutes

	mu      sync.Mutex
	minutes map[Minute]*seenMinute
}

// NewSeen returns a Seen that writes to a Table.
func NewSeen(t *Minutes) *Seen { return &Seen{table: t, minutes: map[Minute]*seenMinute{}} }

// change changes a minute.
func (s *Seen) change(at time.Time, do func(*seenMinute)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.minutes[MinuteAt(at)]
	if m == nil {
		m = &seenMinute{entities: Entities{}}
		s.minutes[MinuteAt(at)] = m
	}
	m.changes++
	do(m)
}

// Look records how many rows wait at a time of the database's clock, and how long the first one has
// waited.
func (s *Seen) Look(at time.Time, waiting int, oldest time.Duration) {
	s.change(at, func(m *seenMinute) {
		m.looked, m.waiting, m.oldest = true, max(m.waiting, waiting), max(m.oldest, oldest)
	})
}

// Settle counts the rows of a batch that was settled at a time of the database's clock.
func (s *Seen) Settle(at time.Time, e Entities) {
	if len(e) > 0 {
		s.change(at, func(m *seenMinute) { m.entities.Merge(e) })
	}
}

// Contract: an exclusive lock for one statement on one row by primary key, which only this process
// writes. Repeating it is harmless.
const seenSQL = `INSERT INTO cache_outbox_minutes (minute, worker, waiting, oldest_ms, entities) VALUES (?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE waiting = ?, oldest_ms = ?, entities = ?`

// Write writes the minutes that have changed, and keeps only the last two. The next Write repeats
// what fails. One goroutine calls it.
func (s *Seen) Write(ctx context.Context) error {
	s.mu.Lock()
	list := slices.Sorted(maps.Keys(s.minutes))
	s.mu.Unlock()
	for i, at := range list {
		s.mu.Lock()
		m := s.minutes[at]
		n, values := m.changes, m.values()
		s.mu.Unlock()
		if n > m.written {
			if err := s.table.note(ctx, seenSQL, at, values...); err != nil {
				return err
			}
			m.written = n
		}
		if i < len(list)-2 {
			s.mu.Lock()
			delete(s.minutes, at)
			s.mu.Unlock()
		}
	}
	return nil
}

// values returns the values of the columns.
func (m *seenMinute) values() []any {
	if !m.looked {
		return []any{nil, nil, m.entities.text()}
	}
	return []any{m.waiting, m.oldest.Milliseconds(), m.entities.text()}
}
