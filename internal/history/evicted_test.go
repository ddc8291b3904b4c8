package history

import (
	"fmt"
	"testing"
)

// A message that was reported twice counts once, and the messages of several epochs are added up.
func TestEvictorsOf(t *testing.T) {
	t.Parallel()
	got := evictorsOf(map[uint64][]*wantedRun{
		1: {{batch: 9, first: 1, last: 3, heard: map[string][]span{"a": {{1, 2}, {2, 3}, {2, 2}}, "b": {{3, 3}}}}},
		2: {{batch: 9, first: 1, last: 1, heard: map[string][]span{"b": {{1, 1}}}}, {batch: 8, first: 2, last: 2, heard: map[string][]span{}}},
	})
	if want := "map[9:[{a 3} {b 2}]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, wanted %s", got, want)
	}
}
