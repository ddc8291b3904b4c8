package keyspace

import (
	"context"
	"errors"
	"time"
)

const (
	// failoverPatience is how long a sweep waits for a master's successor: longer than a Cluster takes to elect one at
	// its default node timeout of 15 s.
	failoverPatience = 30 * time.Second
	failoverPause    = 200 * time.Millisecond
)

// A patience waits for a failover, and not for what no failover cures.
type patience struct {
	limit time.Duration
	since time.Time // of the first of the errors that came one after the other
}

func (k *Keyspace) newPatience() *patience { return &patience{limit: k.patience} }

// reset notes that something went well.
func (p *patience) reset() { p.since = time.Time{} }

// wait waits a little after an error, or returns it.
func (p *patience) wait(ctx context.Context, err error) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if !mayFailOver(err) || time.Since(p.since) >= p.limit {
		return err
	}
	timer := time.NewTimer(failoverPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return outage(ctx.Err())
	case <-timer.C:
		return nil
	}
}

// mayFailOver reports whether a scan that ended with err may succeed at a successor of its master. Of a Loss the caller
// has to hear at once.
func mayFailOver(err error) bool {
	var o *Outage
	if !errors.As(err, &o) {
		return false
	}
	switch o.State {
	case StateNetwork, StateTimeout, StateLoading, StateReadOnly, StateMasterDown, StateClusterDown, StateMoving, StateNoReplicas:
		return true
	}
	return false
}
