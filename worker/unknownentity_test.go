package worker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A failed query of the journal is repeated soon: rows that an outage has delayed become dead
// letters, or are processed, when it ends.
func TestFailedLookIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	var j journalEntities
	asked, failure := 0, error(errors.New("away"))
	has := func() (bool, error) {
		return j.has(t.Context(), "product", func(context.Context) (map[string]bool, error) {
			asked++
			return map[string]bool{"product": failure == nil}, failure
		})
	}
	for range 2 {
		if known, err := has(); known || !errors.Is(err, failure) {
			t.Errorf("%v, %v during the outage", known, err)
		}
	}
	if wait := time.Until(j.due); asked != 1 || wait > journalRetry {
		t.Errorf("asked %d times, and again after %s", asked, wait)
	}
	failure, j.due = nil, time.Time{} // it has ended, and time has passed
	for range 2 {
		if known, err := has(); !known || err != nil {
			t.Errorf("%v, %v afterwards", known, err)
		}
	}
	if wait := time.Until(j.due); asked != 2 || wait <= journalRetry {
		t.Errorf("asked %d times, and again after %s", asked, wait)
	}
}
