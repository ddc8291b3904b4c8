package cache

import (
	"slices"
	"testing"
)

// Records are logged one by one, in their order: even those that arrive while one is logged, from
// any goroutine, and those after a record whose handler panics.
func TestNews(t *testing.T) {
	t.Parallel()
	var n news
	var told []string
	n.queue(func() {
		n.queue(func() { told = append(told, "back") })
		n.tell()
		told = append(told, "away")
	})
	n.tell()
	n.queue(func() { panic("a handler") })
	n.queue(func() { told = append(told, "away again") })
	func() {
		defer func() { _ = recover() }()
		n.tell()
	}()
	n.tell()
	n.tell()
	if want := []string{"away", "back", "away again"}; !slices.Equal(told, want) {
		t.Errorf("told %q, wanted %q", told, want)
	}
}
