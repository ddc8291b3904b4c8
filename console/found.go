package console

import (
	"context"

	"github.com/unstale/unstale/internal/history"
)

// foundSource reads the old entries that were found most recently.
func (c *Console) foundSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		return history.LatestOld(ctx, c.db, shownRows)
	})
}
