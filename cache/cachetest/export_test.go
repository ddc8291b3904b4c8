package cachetest

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns what a Cache of the Store is given.
func (s *Store) Client() redis.UniversalClient { return client{s.client, s} }

// Hold sets a tombstone, or anything else.
func (s *Store) Hold(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(name, "1", d)
}

// TTL returns for how long a name stays, and -2 if there is none.
func (s *Store) TTL(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.get(name); !ok {
		return -2
	}
	return time.Duration(s.left(name)) * time.Millisecond
}
