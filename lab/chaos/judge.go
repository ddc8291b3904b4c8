package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

// A judge determines the outcome of transactions. It reads only MySQL and Redis.
type judge struct {
	stage    *stage
	fleet    *rig.Fleet
	patience time.Duration
}

// A verdict is the result for the transactions of one round.
type verdict struct {
	committed, rolledBack int // proven
	unproven              int
	dead                  int
	faults                []string
}

// judge waits until the workers have no work left, and checks every transaction. The shop does not
// write meanwhile, and all servers run.
func (j *judge) judge(ctx context.Context, txs []transaction, losses []window) (verdict, error) {
	var v verdict
	if left, err := j.waitForNothing(ctx); err != nil || left != "" {
		if left != "" {
			v.faults = append(v.faults, fmt.Sprintf("rows wait after %s of peace: %s\n%s", j.patience, left, j.scene(ctx)))
		}
		return v, err
	}
	committed, err := j.ledger(ctx)
	if err != nil {
		return v, err
	}
	if err := j.judgeKeys(ctx, &v, txs, committed, losses); err != nil {
		return v, err
	}
	if err := j.judgeDead(ctx, &v, txs, committed); err != nil {
		return v, err
	}
	return v, j.clear(ctx, txs)
}

// waitForNothing returns the rows that still wait when patience ends.
func (j *judge) waitForNothing(ctx context.Context) (left string, err error) {
	limit := time.Now().Add(j.patience)
	for {
		var outbox, delayed, sweeps int
		err := j.stage.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM cache_outbox), "+
			"(SELECT COUNT(*) FROM cache_outbox_delayed), (SELECT COUNT(*) FROM cache_outbox_sweeps)").Scan(&outbox, &delayed, &sweeps)
		if err == nil && outbox+delayed+sweeps == 0 {
			return "", nil
		}
		if time.Now().After(limit) {
			return fmt.Sprintf("%d in the outbox, %d delayed, %d sweeps", outbox, delayed, sweeps), err
		}
		if err := sleep.For(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// scene describes the state of the servers and the workers when nothing moves.
func (j *judge) scene(ctx context.Context) string {
	var b strings.Builder
	rows, err := j.stage.db.QueryContext(ctx, "SELECT COALESCE(user, ''), command, time, COALESCE(state, ''), COALESCE(LEFT(info, 120), '') FROM information_schema.processlist")
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var who, command, state, info string
			var seconds int
			if rows.Scan(&who, &command, &seconds, &state, &info) == nil {
				fmt.Fprintf(&b, "  mysql: %s %s %d s %s %s\n", who, command, seconds, state, info)
			}
		}
	}
	for i, n := range j.stage.redis {
		fmt.Fprintf(&b, "  redis %d: role %v\n", i, n.Client.Do(ctx, "role").Val())
	}
	return b.String() + j.fleet.Tails()
}

// ledger returns the numbers of the transactions that committed.
func (j *judge) ledger(ctx context.Context) (map[uint64]bool, error) {
	rows, err := j.stage.db.QueryContext(ctx, "SELECT tx FROM chaos_ledger")
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer rows.Close()
	committed := map[uint64]bool{}
	for rows.Next() {
		var tx uint64
		if err := rows.Scan(&tx); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		committed[tx] = true
	}
	return committed, rows.Err()
}

// judgeKeys checks every key. When a worker heals, it may still be deleting keys of committed
// transactions, so judgeKeys repeats the check until patience ends.
func (j *judge) judgeKeys(ctx context.Context, v *verdict, txs []transaction, committed map[uint64]bool, losses []window) error {
	var stale []transaction
	for _, part := range parts(txs, 2000) {
		there, err := j.present(ctx, part)
		if err != nil {
			return err
		}
		for i := range part {
			t := &part[i]
			switch unsure := t.mayBeLost(losses); {
			case t.kind == bad:
			case committed[t.id] && there[i] > 0:
				stale = append(stale, *t)
			case unsure:
				v.unproven++
			case committed[t.id]:
				v.committed++
			case there[i] < len(t.keys()):
				v.faults = append(v.faults, fmt.Sprintf("transaction %d (%s) rolled back, but %d of its %d keys are gone",
					t.id, t.kind, len(t.keys())-there[i], len(t.keys())))
			default:
				v.rolledBack++
			}
		}
	}
	return j.judgeStale(ctx, v, stale, losses)
}

func (j *judge) judgeStale(ctx context.Context, v *verdict, stale []transaction, losses []window) error {
	for limit := time.Now().Add(j.patience); len(stale) > 0; {
		there, err := j.present(ctx, stale)
		if err != nil {
			return err
		}
		var still []transaction
		for i, t := range stale {
			switch {
			case there[i] > 0:
				still = append(still, t)
			case t.mayBeLost(losses):
				v.unproven++
			default:
				v.committed++
			}
		}
		stale = still
		if time.Now().After(limit) {
			break
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	for _, t := range stale {
		v.faults = append(v.faults, j.describe(ctx, t))
	}
	return nil
}

// mayBeLost reports whether Redis may have lost the keys with its data.
func (t *transaction) mayBeLost(losses []window) bool {
	for _, w := range losses {
		if !t.setDone.Before(w.from) && !t.setBegan.After(w.to) {
			return true
		}
	}
	return false
}

// present counts the keys that exist, for each transaction.
func (j *judge) present(ctx context.Context, txs []transaction) ([]int, error) {
	pipe := j.stage.cache().Pipeline()
	counts := make([]interface{ Val() int64 }, len(txs))
	for i := range txs {
		if keys := txs[i].keys(); len(keys) > 0 {
			counts[i] = pipe.Exists(ctx, keys...)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("look for keys: %w", err)
	}
	there := make([]int, len(txs))
	for i, c := range counts {
		if c != nil {
			there[i] = int(c.Val())
		}
	}
	return there, nil
}

// judgeDead compares the dead letters with the rows that were bad on purpose.
func (j *judge) judgeDead(ctx context.Context, v *verdict, txs []transaction, committed map[uint64]bool) error {
	wanted := map[string]bool{}
	for _, t := range txs {
		if t.kind == bad && committed[t.id] {
			wanted[fmt.Sprint(t.id)] = true
		}
	}
	rows, err := j.stage.db.QueryContext(ctx, "SELECT entity, entity_id, reason, error FROM cache_outbox_dead")
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var entity, id, reason, text string
		if err := rows.Scan(&entity, &id, &reason, &text); err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
		if !wanted[id] || reason != "unknown_entity" || text == "" {
			v.faults = append(v.faults, fmt.Sprintf("row %s %s is dead, %s: %s", entity, id, reason, text))
		}
		v.dead++
		delete(wanted, id)
	}
	for id := range wanted {
		v.faults = append(v.faults, "row nonsense "+id+" is not among the dead letters")
	}
	return rows.Err()
}

// describe tells all that is known of a committed transaction whose keys are still there.
func (j *judge) describe(ctx context.Context, t transaction) string {
	var b strings.Builder
	fmt.Fprintf(&b, "LOST: transaction %d (%s) committed, and its keys exist:", t.id, t.kind)
	cache := j.stage.cache()
	ids := map[string]bool{}
	for _, key := range t.keys() {
		value, err := cache.Get(ctx, key).Result()
		if err == nil {
			fmt.Fprintf(&b, "\n  %s = %q", key, value)
			ids[strings.TrimPrefix(key, "chaos:thing:")] = true
		}
	}
	fmt.Fprintf(&b, "\n  its keys were set from %s to %s", t.setBegan.Format(time.RFC3339Nano), t.setDone.Format(time.RFC3339Nano))
	for _, table := range []string{"cache_outbox", "cache_outbox_delayed", "cache_outbox_dead"} {
		var id sql.NullInt64
		err := j.stage.db.QueryRowContext(ctx, "SELECT MIN(id) FROM "+table+" WHERE entity_id = ?", fmt.Sprint(t.id)).Scan(&id)
		if err == nil && id.Valid {
			fmt.Fprintf(&b, "\n  row %d of %s", id.Int64, table)
		}
	}
	for _, entity := range []string{"thing", "many", "shelf"} {
		for id := range ids {
			if text, err := j.fleet.Call(ctx, "history", "--entity", entity, "--id", id); err == nil {
				fmt.Fprintf(&b, "\n  history of %s %s:\n%s", entity, id, text)
			}
		}
	}
	return b.String()
}

// clear removes the data of checked transactions.
func (j *judge) clear(ctx context.Context, txs []transaction) error {
	for _, stmt := range []string{"TRUNCATE TABLE chaos_ledger", "DELETE FROM cache_outbox_dead"} {
		if _, err := j.stage.db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("clear: %w", err)
		}
	}
	for _, part := range parts(txs, 2000) {
		pipe := j.stage.cache().Pipeline()
		for i := range part {
			if keys := part[i].keys(); len(keys) > 0 {
				pipe.Unlink(ctx, keys...)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("clear: %w", err)
		}
	}
	return nil
}

// parts cuts transactions into lists of at most n.
func parts(txs []transaction, n int) (out [][]transaction) {
	for len(txs) > n {
		out, txs = append(out, txs[:n]), txs[n:]
	}
	return append(out, txs)
}
