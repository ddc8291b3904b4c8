package store

import "time"

// A Batch is the head of a journal row.
type Batch struct {
	ID         uint64    `db:"id"`
	Worker     string    `db:"worker"`
	SettledAt  time.Time `db:"settled_at"` // UTC, the database's clock
	Rows       int       `db:"row_count"`
	MapVersion string    `db:"map_version"`
	// Born is Settlement.Born of the latest unlink of the batch. Only ReadJournal and ClaimHeal
	// read it.
	Born uint64 `db:"born_us"`
	// Journey is nil if the timeline is unknown. Only SearchJournal reads it.
	Journey *Journey `db:"-"`
}

// BornAt returns Born as a time, or nil if it is unknown.
func (b *Batch) BornAt() *time.Time {
	if b.Born == 0 {
		return nil
	}
	t := time.UnixMicro(int64(b.Born)).UTC()
	return &t
}
