package store

import (
	"context"
	"fmt"
	"time"
)

// Waiting reports, with one plain statement, whether cache_outbox has a row. It includes rows that
// another worker holds, which the next claim does not get.
func (q *Queue) Waiting(ctx context.Context) (found bool, err error) {
	began := time.Now()
	at, err := q.begin(ctx, request{began: began, poll: true})
	if err == nil && at.isWhole() && !at.first.found {
		q.planner.sawAll(began)
	}
	if err == nil && at.head > 0 {
		query := "SELECT " + fmt.Sprintf(existsSQL, "id >= ?")
		if len(at.stragglers) > 0 {
			query += " OR " + fmt.Sprintf(existsSQL, spanned(at.stragglers))
		}
		err = q.db.Claims.QueryRowContext(ctx, query, at.head).Scan(&found)
	}
	if err != nil {
		return false, fmt.Errorf("poll outbox: %w", err)
	}
	return found || at.first.found, nil
}

// Contract: no lock (a consistent read), one row of the index named, the pause by primary key.
const pollStateSQL = `SELECT EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6)),
EXISTS (SELECT 1 FROM cache_outbox_control WHERE name = 'pause' AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))), UTC_TIMESTAMP(6)`

// A PollState is the state that changes slowly, read in one plain statement.
type PollState struct {
	Due    bool // a delayed row is due
	Paused bool // see Pause
}

// PollState reads a PollState and the database's clock.
func (q *Queue) PollState(ctx context.Context) (state PollState, err error) {
	var now time.Time
	sent := time.Now()
	if err := q.db.Claims.QueryRowContext(ctx, pollStateSQL).Scan(&state.Due, &state.Paused, &now); err != nil {
		return PollState{}, fmt.Errorf("poll outbox: %w", err)
	}
	q.clock.observe(sent, now)
	return state, nil
}
