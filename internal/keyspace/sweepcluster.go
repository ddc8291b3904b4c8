package keyspace

import (
	"context"
	"fmt"
	"sync"
)

// maxRounds bounds how often slots may move on before a sweep gives up.
const maxRounds = 20

// cluster scans all masters in parallel, and then again, from the start, those that a key may have
// moved to without being seen.
//
// A key is seen at the master that has it before the scan of that master begins, unless it moves to
// another one before that scan ends. So it is enough to scan the other one again, after the scan of
// the first has ended. A failover is the same: all slots move, to the replica. Keys that move
// during the second round were seen in the first, except those from masters of the second round,
// whose slots may move on; and so on. A slot that moves and comes back within one round goes
// undetected: the second sweep covers that too.
func (p *sweep) cluster(ctx context.Context) error {
	patience := p.sweeper.newPatience()
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
		l, err := p.sweeper.layout(ctx)
		if err == nil {
			return l, nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// round scans the masters that are due, in parallel, and returns those errors that another round
// may fix.
func (p *sweep) round(ctx context.Context, l *layout, due map[string]bool) (failed map[string]error, err error) {
	masters, err := p.sweeper.nodes.masters(ctx)
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
