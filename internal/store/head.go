package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	nearScan    = time.Millisecond      // a look at the table's start that takes longer is worth avoiding
	lookShare   = 1000                  // such looks take at most one part in so many of the time
	longestRest = time.Minute           // between two of them, whatever they take
	lookLife    = 50 * time.Millisecond // for which claims that begin at the head rely on a quick look
	nearLife    = time.Second           // for which those that begin at the table's start do
	backLife    = 30 * time.Second      // for which a far head looks back at what it has passed over: longer than any claim
	nearBack    = 2 * time.Second       // for which it does so often: longer than most statements
	backRest    = 50 * time.Millisecond // between two looks back
	backShare   = 20                    // those of either kind take at most one part in so many of the time
	plainlySlow = 20 * time.Millisecond // what no busy machine explains
	longestTrip = 5 * time.Millisecond  // to the server and back, that is not taken for a slow scan
	strayRest   = 10 * time.Millisecond // between two claims of strays
	maxStrays   = 500                   // ids; more of them are not passed over
)

// A head remembers where cache_outbox begins. A row that is deleted stays in the index until it is purged, and a backup's
// snapshot holds purge back for hours: a claim that begins at the table's start walks over a million of them in 330 ms,
// a plain look in 45 ms (MySQL 9.7).
//
// Commits come in another order than ids, so below the head there may be rows again: late commits, rows of a worker that
// died, ids that an operator chose. As long as a look at the table's start is quick, which is nearly always, each poll is
// one, and claims begin there too, unless a backlog is drained: then the head is good for some claims. When looks are slow
// the head is far: they become rare, and the ids below the head that existed when it passed over them, to READ
// UNCOMMITTED, are strays, which claims ask for by id. An id may also be given out before its row is inserted, and a row
// whose deletion is not committed yet may come back: so for half a minute a far head looks back, again and again, at what it
// has passed over.
type head struct {
	near    time.Duration // nearScan, but for tests
	mu      sync.Mutex
	low     uint64        // claims begin here; 0: at the table's start
	far     bool          // the last look at the table's start was slow
	looked  time.Time     // when it ended
	moved   bool          // the head was moved since
	full    bool          // the last claim was: more rows probably wait, beyond low
	rest    time.Time     // until which there is no other
	strays  []uint64      // ascending, below low; only while the head is far
	probed  time.Time     // when strays were last claimed
	trip    time.Duration // to the server and back, when last measured
	passed  []mark        // where the head was, oldest first
	back    time.Time     // until which there is no look back
	allBack time.Time     // until which there is none at all of it, but of the latest seconds
}

// A mark says where the head was before it moved.
type mark struct {
	at  time.Time
	low uint64
}

// move moves the head and leaves a mark each second.
func (h *head) move(low uint64) {
	now := time.Now()
	switch n := len(h.passed); {
	case low <= h.low:
	case n == 0 || now.Sub(h.passed[n-1].at) >= time.Second:
		h.passed = append(h.passed, mark{now, h.low})
	default: // it may have been moved back meanwhile
		h.passed[n-1].low = min(h.passed[n-1].low, h.low)
	}
	h.low = low
	for len(h.passed) > 0 && now.Sub(h.passed[0].at) > backLife+time.Second {
		h.passed = h.passed[1:]
	}
}

// Contract for all: no lock. They read one row at most, or the rows of a range up to LIMIT, or those listed. A query for
// the id alone is planned as a scan from the table's start whatever its bound (MySQL 9.7), so all that have one ask for
// another column.
const (
	firstSQL         = "SELECT COALESCE((SELECT id FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1), 0)"
	fromSQL          = "SELECT EXISTS (SELECT entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE id >= ?)"
	amongSQL         = "EXISTS (SELECT entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE id IN (%s))"
	belowSQL         = "SELECT id, entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
	existingSQL      = "SELECT id, entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE id IN (%s) ORDER BY id"
	autoIncrementSQL = "SELECT COALESCE(MAX(AUTO_INCREMENT), 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'cache_outbox'"
)

// Waiting says in one plain statement whether cache_outbox has a row. A row that another worker holds counts: the claim
// that follows will not get it.
func (s *Store) Waiting(ctx context.Context) (found bool, err error) {
	h := &s.head
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().After(h.rest) {
		if err := s.look(ctx); err != nil {
			return false, err
		}
		if !h.far {
			return h.low > 0, nil
		}
	}
	if err := s.lookBack(ctx); err != nil {
		return false, err
	}
	query := fromSQL
	if list := h.due(); len(list) > 0 {
		query += " OR " + fmt.Sprintf(amongSQL, join(list))
	}
	if err := s.claims.QueryRowContext(ctx, query, h.low).Scan(&found); err != nil {
		return false, fmt.Errorf("poll outbox: %w", err)
	}
	return found, nil
}

// look scans from the table's start: to the first row, or if that is slow up to the head, for strays. How slow a scan is
// does not count the way to the server and back.
func (s *Store) look(ctx context.Context) error {
	h := &s.head
	if h.far {
		switch took, err := s.lookForStrays(ctx); {
		case err != nil:
			return err
		case took > h.near:
			return nil
		}
	}
	var first uint64
	for range 2 { // once more where it was slow: that may have been the machine
		began := time.Now()
		if err := s.claims.QueryRowContext(ctx, firstSQL).Scan(&first); err != nil {
			return fmt.Errorf("poll outbox: %w", err)
		}
		h.looked = time.Now()
		took := h.looked.Sub(began)
		if took-h.trip > h.near && took <= plainlySlow {
			trip, err := s.trip(ctx)
			if err != nil {
				return err
			}
			h.trip = min(trip, longestTrip)
		}
		if took-h.trip <= h.near {
			h.move(first)
			h.far, h.moved, h.strays, h.rest = false, false, nil, time.Time{}
			return nil
		}
		if took > plainlySlow {
			break
		}
	}
	switch {
	case first > 0:
		h.move(first)
	case h.low == 0: // nothing was seen yet: all ids that were ever given are below
		next, err := s.nextID(ctx)
		if err != nil {
			return fmt.Errorf("poll outbox: %w", err)
		}
		h.move(next)
	}
	_, err := s.lookForStrays(ctx)
	return err
}

// lookForStrays lists what there is below the head, which is far then, and says how long that took. It is given up after
// half of the time that ctx leaves: there is no committed row that it could find when the head has just become far, and
// later the next one may have more luck.
func (s *Store) lookForStrays(ctx context.Context) (took time.Duration, err error) {
	h := &s.head
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(2 * s.cfg.StatementTimeout)
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	strays, took, err := s.below(limited, 0, h.low)
	switch {
	case err == nil:
		h.strays, h.probed = nil, time.Time{}
		h.remember(strays)
	case limited.Err() != nil && ctx.Err() == nil:
		took = time.Since(began)
	default:
		return 0, fmt.Errorf("poll outbox: %w", err)
	}
	h.far, h.moved = true, false
	h.looked = time.Now()
	h.rest = h.looked.Add(min(lookShare*took, longestRest))
	return took, nil
}

// lookBack lists again what there is in what a far head has passed over of late.
func (s *Store) lookBack(ctx context.Context) error {
	h := &s.head
	h.move(h.low) // which drops marks that are too old
	now := time.Now()
	if !h.far || now.Before(h.back) {
		return nil
	}
	since, next := now.Add(-nearBack), &h.back
	if now.After(h.allBack) {
		since, next = time.Time{}, &h.allBack
	}
	from := h.low
	for _, m := range h.passed {
		if m.at.Add(time.Second).After(since) {
			from = min(from, m.low)
		}
	}
	if from == h.low {
		return nil
	}
	strays, took, err := s.below(ctx, from, h.low)
	if err != nil {
		return fmt.Errorf("poll outbox: %w", err)
	}
	known := len(h.strays)
	h.strays = slices.DeleteFunc(h.strays, func(id uint64) bool { return id >= from })
	h.remember(strays)
	if len(h.strays) > known {
		h.probed = time.Time{}
	}
	*next = time.Now().Add(max(backRest, backShare*took))
	return nil
}

// trip is how long the way to the server and back takes.
func (s *Store) trip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if _, err := s.claims.ExecContext(ctx, "DO 0"); err != nil {
		return 0, fmt.Errorf("poll outbox: %w", err)
	}
	return time.Since(began), nil
}

// nextID is the id that the next row gets.
func (s *Store) nextID(ctx context.Context) (id uint64, err error) {
	err = s.side.QueryRowContext(ctx, autoIncrementSQL).Scan(&id)
	return id, err
}

// A start is where a claim begins.
type start struct {
	low    uint64
	strays []uint64 // that it asks for as well
	vague  bool     // there may be rows that are neither
}

// begin says where a claim begins: as it is remembered if it was made certain just now, or certainly.
func (s *Store) begin(ctx context.Context, certain bool) (start, error) {
	h := &s.head
	h.mu.Lock()
	defer h.mu.Unlock()
	now, life := time.Now(), lookLife
	if !h.far && !h.full {
		life = nearLife
	}
	if now.After(h.rest) && (now.Sub(h.looked) > life || certain && h.moved) {
		if err := s.look(ctx); err != nil {
			return start{}, err
		}
	}
	if !h.far && !h.full {
		return start{}, nil
	}
	if err := s.lookBack(ctx); err != nil {
		return start{}, err
	}
	at := start{low: h.low, vague: h.moved && !h.far}
	switch strays := h.due(); {
	case len(h.strays) == 0:
	case len(strays) > 0 || certain:
		var err error
		if h.strays, err = s.existing(ctx, h.strays); err != nil {
			return start{}, fmt.Errorf("claim rows: %w", err)
		}
		h.probed, at.strays = now, slices.Clone(h.strays)
	default:
		at.vague = true
	}
	return at, nil
}

// claimed notes whether a claim was full. Strays that it may have left out are due at once.
func (h *head) claimed(full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full = full; full {
		h.probed = time.Time{}
	}
}

// due are the strays, unless they were asked for just now.
func (h *head) due() []uint64 {
	if time.Since(h.probed) < strayRest {
		return nil
	}
	return h.strays
}

// remember takes in strays, in order. What is too much is not passed over.
func (h *head) remember(strays []uint64) {
	if room := maxStrays - len(h.strays); len(strays) > room {
		h.low, strays = strays[room], strays[:room]
	}
	h.strays = append(h.strays, strays...)
}

// advance moves the head beyond the rows of a claim that were settled.
func (s *Store) advance(ctx context.Context, rows []Row, gone []uint64) {
	h := &s.head
	h.mu.Lock()
	defer h.mu.Unlock()
	settled := make(map[uint64]bool, len(gone))
	for _, id := range gone {
		settled[id] = true
	}
	h.strays = slices.DeleteFunc(h.strays, func(id uint64) bool { return settled[id] })
	passed, low := uint64(0), h.low // rows, and where the head is then
	for i := range rows {
		id := rows[i].ID
		if id < h.low {
			continue
		}
		if !settled[id] {
			break
		}
		low, passed = id+1, passed+1
	}
	h.moved = h.moved || passed > 0
	if h.far && low-h.low > passed { // somebody holds what is between, or has not committed it
		strays, _, err := s.below(ctx, h.low, low)
		if err != nil {
			return // the next claim begins where this one did, and meets the error if it lasts
		}
		h.move(low)
		h.remember(strays)
		return
	}
	h.move(low)
}

// below lists rows between two ids, committed or not, at most one more than can be remembered, and says how long the server
// took.
func (s *Store) below(ctx context.Context, from, to uint64) (ids []uint64, took time.Duration, err error) {
	return s.uncommitted(ctx, belowSQL, from, to, maxStrays+1)
}

// existing lists which of the ids are rows, committed or not.
func (s *Store) existing(ctx context.Context, ids []uint64) ([]uint64, error) {
	ids, _, err := s.uncommitted(ctx, fmt.Sprintf(existingSQL, join(ids)))
	return ids, err
}

func (s *Store) uncommitted(ctx context.Context, query string, args ...any) (ids []uint64, took time.Duration, err error) {
	tx, err := s.side.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	ids, err = readIDs(ctx, tx, query, args...)
	took = time.Since(began)
	ended := time.Now()
	_ = tx.Rollback() // it has only read
	return ids, max(took-time.Since(ended), 0), err
}

func readIDs(ctx context.Context, tx *sql.Tx, query string, args ...any) (ids []uint64, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	for rows.Next() {
		var id uint64
		var entity string
		if err := rows.Scan(&id, &entity); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// join lists ids as SQL does.
func join(ids []uint64) string {
	var text []byte
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, id, 10)
	}
	return string(text)
}
