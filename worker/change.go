package worker

import (
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
)

// A change is one claimed row on its way: decoded, then expanded, then either applied or at fault.
type change struct {
	row     *store.ClaimedRow
	decoded invalidation.Row
	plan    invalidation.Plan
	targets []int // indexes into batch.set.Targets, one for each of plan.Keys
	end     int   // of the targets of this change and of all before it
	fault   *invalidation.RowError
	retry   bool // the fault may pass: delay the row before dead-lettering it
	known   bool // the fault is an entity that was known lately: delay the row for longer
	partial bool // at fault, and what needs no lookup is applied: see expandPartly
	// the outage of the shard that has one of the keys: delay the row without counting an attempt
	away error
}

func (c *change) decode(paramsLimit int) {
	switch cut := c.row.TruncatedField(); {
	case cut != "":
		c.refuse(invalidation.BadParameter, fmt.Errorf(
			"%s fills its column, so it was probably cut by a non-strict sql_mode; write at most %d characters of entity and %d of id",
			cut, outbox.MaxEntity, outbox.MaxID))
		return
	case c.row.Unread() || c.row.ParamsBytes > paramsLimit:
		c.refuse(invalidation.ParamsTooLarge, fmt.Errorf("%d bytes, limits.params is %d; pass ids, not documents", c.row.ParamsBytes, paramsLimit))
		return
	}
	params, err := invalidation.ParseParams(c.row.Params)
	if err != nil {
		c.blame(err)
		return
	}
	c.decoded = invalidation.Row{Entity: c.row.Entity, ID: c.row.EntityID, Params: params}
}

func (c *change) refuse(reason invalidation.Reason, err error) {
	c.fault = &invalidation.RowError{Reason: reason, Err: err}
}

// blame keeps err, which package invalidation returned, as the change's fault.
func (c *change) blame(err error) {
	if !errors.As(err, &c.fault) {
		c.refuse(invalidation.BadParameter, err)
	}
}

// weight returns the weight of the change, by its plan or its fault.
func (c *change) weight() weight {
	p := &c.plan
	n := weight{names: p.Len()}
	for _, list := range [...][]string{p.Keys, p.Patterns, p.Sets} {
		for _, name := range list {
			n.bytes += len(name)
		}
	}
	switch {
	case c.fault != nil: // the row is copied to the delayed rows or the dead letters
		n.bytes += c.row.ParamsBytes
	case !c.row.Repeated:
		n.bytes += len(p.Repeat) * c.row.ParamsBytes
	}
	return n
}

// applies reports whether the plan of the change goes to Redis and to the journal.
func (c *change) applies() bool { return c.away == nil && (c.fault == nil || c.partial) }
