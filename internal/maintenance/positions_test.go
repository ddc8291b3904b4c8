package maintenance

import "testing"

// Reading the settled batches costs time per batch, querying all epochs costs time per epoch. The
// worker chooses the cheaper one.
func TestKnownPositionsAreBusy(t *testing.T) {
	t.Parallel()
	l := knownPositions{last: map[string]uint64{"OURS": 100, "THEIRS": 7}}
	for _, c := range []struct {
		epoch string
		beat  uint64
		want  bool
	}{
		{"OURS", 100, false},
		{"OURS", 106, false}, // a worker without work, after five seconds
		{"OURS", 2600, true},
		{"NEW", 1, false},
		{"NEW", 2600, true},
	} {
		if got := l.isBusy(c.epoch, c.beat); got != c.want {
			t.Errorf("%s at position %d: %v", c.epoch, c.beat, got)
		}
	}
}
