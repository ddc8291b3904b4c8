package console

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/operate"
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
	Letters []operate.DeadLetter
}

// deadSource reads the newest dead letters of each reason.
func (c *Console) deadSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		orders := operate.NewOrders(c.db)
		counts, err := orders.DeadReasons(ctx)
		if err != nil {
			return nil, err
		}
		list := []deadReason{}
		for reason, n := range counts {
			letters, err := orders.DeadLetters(ctx, operate.DeadQuery{Reason: reason}, shownLetters)
			if err != nil {
				return nil, err
			}
			list = append(list, deadReason{reason, n, letters})
		}
		slices.SortFunc(list, func(a, b deadReason) int { return b.N - a.N })
		return list, nil
	})
}
