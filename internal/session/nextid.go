package session

import "context"

// Contract: no lock on rows; the dictionary, bypassing its cache (see the session's settings). A
// table that never had a row may have no counter yet.
const nextIDSQL = "SELECT COALESCE(MAX(AUTO_INCREMENT), 1) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"

// NextID returns the ID that the next row of a table gets. The greatest ID is never assigned: at
// that value, the table has no ID left.
func (s *Sessions) NextID(ctx context.Context, table string) (id uint64, err error) {
	err = s.Side.GetContext(ctx, &id, nextIDSQL, table)
	return max(id, 1), err
}
