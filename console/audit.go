package console

import (
	"context"

	"github.com/unstale/unstale/internal/operate"
)

// auditSource reads the latest actions of operators.
func (c *Console) auditSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		rows, total, err := operate.NewOrders(c.db).Audit(ctx, operate.AuditQuery{}, shownRows)
		if err != nil {
			return nil, err
		}
		return rowList[operate.AuditRecord]{rows, total}, nil
	})
}
