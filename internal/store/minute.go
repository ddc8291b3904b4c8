package store

import "time"

// A Minute is a minute of the database's clock, as the number of minutes since 1970.
type Minute uint32

// MinuteAt returns the minute of a time of the database's clock.
func MinuteAt(t time.Time) Minute { return Minute(t.Unix() / 60) }

const (
	hour  = 60
	day   = 24 * hour
	month = 30 * day
	// keep is how long rows stay per minute and worker: longer than the window of a day.
	keep = day + hour
)
