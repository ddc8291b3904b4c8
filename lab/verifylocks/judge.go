package verifylocks

import (
	"context"
	"database/sql"
	"fmt"
)

// mostFindings is how many of a phase are described.
const mostFindings = 10

// A counted is the ledger and the counter of one lock.
type counted struct {
	id                           int
	n, rows, distinct, last, low int64
}

// judge compares counters, the ledger and the counts of the holders, in one snapshot. A later
// commit is not part of it.
func (t *turn) judge(ctx context.Context, into *Result) error {
	tx, err := t.stage.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	into.Turns++
	into.Broken += t.plays
	if err := t.judgeCounters(ctx, tx, into); err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	if err := t.judgeProcesses(ctx, tx, into); err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	return nil
}

// judgeCounters finds updates that are lost.
func (t *turn) judgeCounters(ctx context.Context, tx *sql.Tx, into *Result) error {
	rows, err := tx.QueryContext(ctx, `SELECT id, n, COUNT(value), COUNT(DISTINCT value), COALESCE(MAX(value), 0), COALESCE(MIN(value), 1)
FROM counters LEFT JOIN (SELECT counter, value FROM ledger WHERE id > ?) AS written ON counter = counters.id
WHERE counters.id BETWEEN ? AND ? GROUP BY counters.id`, t.after, t.counter(0), t.counter(len(lanes))-1)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c counted
		if err := rows.Scan(&c.id, &c.n, &c.rows, &c.distinct, &c.last, &c.low); err != nil {
			return err
		}
		i := (c.id - t.counter(0)) / (mostNames + 1)
		lane := into.lane(i)
		if lane == nil {
			continue
		}
		lane.Sections += c.rows
		lane.Lost += c.rows - c.n
		if lanes[i].guarded && (c.n != c.rows || c.distinct != c.rows || c.last != c.rows || c.low != 1) {
			into.find("%s: counter %d of turn %d is %d after %d sections, which wrote %d values from %d to %d",
				lanes[i], c.id-t.counter(i), into.Turns, c.n, c.rows, c.distinct, c.low, c.last)
		}
	}
	return rows.Err()
}

// judgeProcesses finds commits that are gone, and such as should not be there.
func (t *turn) judgeProcesses(ctx context.Context, tx *sql.Tx, into *Result) error {
	kept := map[[2]int]int{} // process and lane
	rows, err := tx.QueryContext(ctx, "SELECT process, (counter - ?) DIV ?, COUNT(*) FROM ledger WHERE id > ? GROUP BY 1, 2", t.counter(0), mostNames+1, t.after)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var process, lane, n int
		if err := rows.Scan(&process, &lane, &n); err != nil {
			return err
		}
		kept[[2]int{process, lane}] = n
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, p := range t.crowd.all() {
		all := p.soFar()
		for _, i := range t.crowd.spec.lanes() {
			told, lane, n := all[i], into.lane(i), kept[[2]int{p.number, i}]
			lane.Refused += told.Refused
			lane.Unknown += told.Unknown
			lane.Failed += told.Failed
			if told.Error != "" {
				lane.Error = told.Error
			}
			if n < told.Done {
				into.find("%s: process %d of turn %d got %d commits acknowledged, and MySQL has %d", lanes[i], p.number, into.Turns, told.Done, n)
			}
			if !p.killed && n > told.Done+told.Unknown {
				into.find("%s: process %d of turn %d got %d commits acknowledged and %d of unknown outcome, and MySQL has %d: it kept one that was refused",
					lanes[i], p.number, into.Turns, told.Done, told.Unknown, n)
			}
		}
	}
	return nil
}

// counter returns the first of a lane.
func (t *turn) counter(lane int) int { return counter(t.crowd.spec.Turn, lane, 0) }
