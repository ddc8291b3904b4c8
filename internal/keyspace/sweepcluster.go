package keyspace

import (
	"context"
	"fmt"
	"sync"
)

// maxRounds bounds how often slots may move on before a sweep gives up.
const maxRounds = 20

// cluster scans all masters side by side, and then again, from the start, those that a key may have moved to while it
// went unseen.
//
// A key is seen where it is before the scan of its master begins, unless it moves to another master before that scan
// ends. So it is enough that the other one is scanned once more, from a time at which the scan of the first has ended.
// A failover is the same: all slots move, to the replica. What moves during the second round was seen in the first,
// except from the masters of the second round itself, whose slots may move on; and so on. A slot that moves and comes
// back within one round goes unnoticed: the settling sweep is for that, too.
func (p *sweep) cluster(ctx context.Context) error {
	patience := p.keyspace.newPatience()
	before, err := p.layout(ctx, patience)
	if err != nil {
		return err
	}
	due := map[string]bool{}
	for id := range before.masters {
		due[id] = true
	}
	for rounds := 0; len(due) > 0; {
		failed, err := p.round(ctx, before, due)
		if err != nil {
			return err
		}
		if len(failed) == 0 {
			patience.reset()
			rounds++
		}
		if rounds > maxRounds {
			return &Outage{State: StateMoving, Err: fmt.Errorf("slots were still moving after %d rounds of a sweep", maxRounds)}
		}
		for _, err := range failed {
			if err := patience.wait(ctx, err); err != nil {
				return err
			}
			break // one wait for all
		}
		after, err := p.layout(ctx, patience)
		if err != nil {
			return err
		}
		next := map[string]bool{}
		for m := range after.movesSince(before) {
			if due[m.from] {
				next[m.to] = true
			}
		}
		for id := range failed {
			if after.masters[id] != "" {
				next[id] = true
			}
		}
		p.again(len(next))
		before, due = after, next
	}
	return nil
}

// layout asks until every master answers.
func (p *sweep) layout(ctx context.Context, patience *patience) (*layout, error) {
	for {
		l, err := p.keyspace.layout(ctx)
		if err == nil {
			return l, nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// round scans the masters that are due, side by side, and returns the errors of those that failed in a way that another
// round may cure.
func (p *sweep) round(ctx context.Context, l *layout, due map[string]bool) (failed map[string]error, err error) {
	masters, err := p.keyspace.masters(ctx)
	if err != nil {
		return nil, err
	}
	like := masters[0].Options()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed = map[string]error{}
	for id := range due {
		group.Go(func() {
			scanErr := p.scan(ctx, l.options(id, like))
			if scanErr == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if mayFailOver(scanErr) {
				failed[id] = scanErr
				return
			}
			if err == nil {
				err = scanErr
			}
			cancel()
		})
	}
	group.Wait()
	return failed, err
}
