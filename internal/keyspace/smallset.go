package keyspace

import "github.com/redis/go-redis/v9"

// A smallSet is one set of a batch.
type smallSet struct {
	SetResult
	name, private string
	size          int64 // of the set as it was looked at; -1: it has to be looked at
	taken         bool  // renamed by this call
	over          bool
	tries         int

	rename *redis.BoolCmd // of this round; nil: there is nothing to rename
	scan   *redis.ScanCmd
	found  []string // by scan
	failed []Failure
}

// end ends a set with an error. The first error stays.
func (s *smallSet) end(err error) {
	if s.over = true; s.Err == nil {
		s.Err = err
	}
}
