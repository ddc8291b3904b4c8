package store

import "time"

// Limits are the times within which invalidations are counted, in ascending order.
var Limits = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}

// Counts are the counts of one settled batch.
type Counts struct {
	// Batches is 1 if the batch unlinked at least one key or tag. A batch that can be sampled by a
	// spot check is one of these.
	Batches uint64
	// Rows are the settled rows with at least one key or tag. They do not include scheduled rows
	// and repeats, which are late on purpose, and rows with only patterns and index sets, whose
	// keys a sweep unlinks later.
	Rows uint64
	// Rows whose keys were unlinked at most this long after they became visible. Within10s includes
	// Within1s, which includes Within100ms.
	Within100ms, Within1s, Within10s uint64
	// Dead are the rows that became dead letters. They are not in Rows. If an operator retries one,
	// it counts again, as a row that was late.
	Dead uint64
}

// Add counts a settled row whose keys were unlinked at most late after it became visible.
func (c *Counts) Add(late time.Duration) {
	c.Rows++
	if late <= 100*time.Millisecond {
		c.Within100ms++
	}
	if late <= time.Second {
		c.Within1s++
	}
	if late <= 10*time.Second {
		c.Within10s++
	}
}
