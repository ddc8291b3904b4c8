package keyspace

import (
	"context"
	"errors"
	"time"
)

const (
	// failoverPatience is how long a sweep waits for a master's successor: longer than a Cluster
	// takes to elect one at its default node timeout of 15 s.
	failoverPatience = 30 * time.Second
	failoverPause    = 200 * time.Millisecond
)

// A patience waits for a failover, and not for errors that a failover does not fix.
type patience struct {
	limit time.Duration
	since time.Time // of the first of consecutive errors
}

func (s *Sweeper) newPatience() *patience { return &patience{limit: s.patience} }

// reset records a success.
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

// mayFailOver reports whether a scan that ended with err may succeed at a successor of its master.
// The caller must get a Loss immediately.
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
