package keyspace

import (
	"context"
	"fmt"
	"sync"
)

// maxRounds bounds how often a slot may move on before a sweep gives up. The caller begins again,
// with the patterns that were requested meanwhile, which would wait otherwise.
const maxRounds = 5

// cluster scans all masters in parallel, and then again, from the start, those that have slots that
// were not seen.
//
// A slot is seen if its master has it at every page of a scan. Each page comes with the master's
// reply about its slots, in one pipeline, so a slot may even leave and return between two pages. A
// slot that is not seen is followed to the masters that have it after the round. Other moves do not
// matter, so slots that move one by one do not keep a sweep going. A failover is the same: all
// slots move, to the replica.
//
// If a move is undone while its destination is scanned again, keys may be missed: the second sweep
// covers that.
func (p *sweep) cluster(ctx context.Context) error {
	patience := p.sweeper.newPatience()
	at, due, err := p.due(ctx, patience, nil)
	for rounds := 0; err == nil && len(due) > 0; p.again(len(due)) {
		failed, roundErr := p.round(ctx, at, due)
		if roundErr != nil {
			return roundErr
		}
		if len(failed) == 0 {
			patience.reset()
			rounds++
		}
		if rounds > maxRounds {
			return &Outage{State: StateMoving, Err: fmt.Errorf("slots were still moving after %d rounds of a sweep", maxRounds)}
		}
		var failure error
		for id := range failed {
			due[id].gone, failure = due[id].slots, failed[id]
		}
		if failure != nil { // one wait for all
			if err := patience.wait(ctx, failure); err != nil {
				return err
			}
		}
		at, due, err = p.due(ctx, patience, due)
	}
	return err
}

// due asks until every master answers, and each slot that a round has not seen has one. It returns
// what is due in the next round: everything in the first.
func (p *sweep) due(ctx context.Context, patience *patience, seen map[string]*stay) (*layout, map[string]*stay, error) {
	for {
		l, err := p.sweeper.layout(ctx)
		if err == nil {
			due, unknown := l.due(seen)
			if unknown == nil {
				return l, due, nil
			}
			err = p.sweeper.moving(ctx, unknown)
		}
		if err := patience.wait(ctx, err); err != nil {
			return nil, nil, err
		}
	}
}

// round scans the masters that are due, in parallel, and returns those errors that another round
// may fix.
func (p *sweep) round(ctx context.Context, l *layout, due map[string]*stay) (failed map[string]error, err error) {
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
	for id, stay := range due {
		group.Go(func() {
			scanErr := p.scan(ctx, l.options(id, like), stay)
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
