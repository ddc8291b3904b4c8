package history

import (
	"fmt"
	"testing"
)

// A message that was reported twice counts once, and the messages of several epochs are added up.
func TestEvictorsOf(t *testing.T) {
	t.Parallel()
	m := reported{}
	for _, r := range []struct {
		process            string
		epoch, first, last uint64
	}{{"a", 1, 1, 2}, {"a", 1, 2, 3}, {"a", 1, 2, 2}, {"b", 1, 3, 3}, {"b", 2, 1, 1}, {"c", 2, 3, 2}} {
		m.addReport(r.process, r.epoch, r.first, r.last)
	}
	if got, want := fmt.Sprint(m.evictors()), "[{a 3} {b 2}]"; got != want {
		t.Errorf("%s, wanted %s", got, want)
	}
}
