package console

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

const (
	listEvery    = 10 * time.Second // of lists that change rarely
	shownLetters = 3                // of each reason
	shownRows    = 10               // of other lists
)

// A deadReason is the newest dead letters of a reason.
type deadReason struct {
	Reason  string
	N       int
	Letters []shownLetter
}

// A shownLetter is a dead letter in the panel.
type shownLetter struct {
	store.DeadLetter
	Near string // a question about the name of an entity that the running map has, or ""
}

// A deadRow is the data of the template "deadrow".
type deadRow struct {
	shownLetter
	Base   string
	Acts   bool
	Listed bool // on a page of the list, which mixes reasons
}

func newDeadRow(base string, acts, listed bool, l shownLetter) deadRow {
	return deadRow{l, base, acts, listed}
}

// runningMap returns the map of the worker of this process, or nil.
func (c Config) runningMap() *invalidation.Map {
	if c.Worker == nil {
		return nil
	}
	return c.Worker.Map()
}

// nearEntity asks for the entity that a dead letter may mean, or returns "".
func (c Config) nearEntity(l store.DeadLetter) string {
	m := c.runningMap()
	if m == nil {
		return ""
	}
	if _, known := m.Describe(l.Entity); known {
		return ""
	}
	return near.DidYouMean(l.Entity, m.Entities(), "")
}

// deadSource reads the newest dead letters of each reason.
func (c *Console) deadSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		orders := store.NewOrders(c.db)
		counts, err := orders.DeadReasons(ctx)
		if err != nil {
			return nil, err
		}
		list := []deadReason{}
		for reason, n := range counts {
			letters, err := orders.DeadLetters(ctx, store.DeadQuery{Reason: reason}, shownLetters)
			if err != nil {
				return nil, err
			}
			shown := deadReason{Reason: reason, N: n}
			for _, l := range letters {
				shown.Letters = append(shown.Letters, shownLetter{l, c.cfg.nearEntity(l)})
			}
			list = append(list, shown)
		}
		slices.SortFunc(list, func(a, b deadReason) int { return b.N - a.N })
		return list, nil
	})
}
