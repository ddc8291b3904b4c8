package main

import (
	"errors"
	"testing"
)

// The database of sessions is not the cache's, wherever the number of the cache's comes from.
func TestDatabasesDiffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url          string
		cache, state int
		refused      bool
	}{
		{"redis://h:6379/0", unsetDB, 0, true},
		{"redis://h:6379", unsetDB, 0, true},
		{"redis://h?db=3", unsetDB, 3, true},
		{"redis+sentinel://h/master/2", unsetDB, 2, true},
		{"redis+cluster://h", unsetDB, 0, true},
		{"redis://h/1", 1, 1, true},
		{"redis://h/1", 0, 0, true},
		{"redis://h/1", 0, 1, true}, // the URL and the flag contradict each other
		{"redis://h", 0, 1, false},
		{"redis://h/2", 2, 1, false},
		{"redis+cluster://h", 1, unsetDB, true}, // Redis Cluster has only database 0
		{"redis+cluster://h", 0, 1, false},
		{"redis://h/1", unsetDB, 0, false},
		{"redis://h/1", unsetDB, unsetDB, false},
		{"redis://h", unsetDB, unsetDB, false},
	} {
		f := redisFlags{url: secret{text: c.url}, cache: c.cache, state: c.state}
		_, err := f.options()
		var usage usageError
		if refused := errors.As(err, &usage); refused != c.refused || !refused && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
