package maintenance

import (
	"context"
	"sync/atomic"
)

// A Source reads and caches the ID of the outbox. Safe for concurrent use.
type HeartbeatSource struct {
	ask func(context.Context) (string, error)
	id  atomic.Pointer[string]
}

// NewHeartbeatSource returns a Source that reads the ID from MySQL with ask.
func NewHeartbeatSource(ask func(context.Context) (string, error)) *HeartbeatSource {
	return &HeartbeatSource{ask: ask}
}

// Get returns the ID, or an empty string if it has not been read yet.
func (s *HeartbeatSource) Get() string {
	if id := s.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Read returns the ID of the outbox. It asks MySQL until one call succeeds.
func (s *HeartbeatSource) Read(ctx context.Context) (string, error) {
	if id := s.Get(); id != "" {
		return id, nil
	}
	id, err := s.ask(ctx)
	if err == nil {
		s.id.Store(&id)
	}
	return id, err
}
