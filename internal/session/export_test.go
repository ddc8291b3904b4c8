package session

import (
	"database/sql"
)

// Pools returns all pools by name.
func (s *Sessions) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{"claims": s.Claims.DB, "side": s.Side.DB, "status": s.status.db, "lookups": s.lookups, "schema": s.schema}
}
