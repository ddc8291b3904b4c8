package maintenance

// A Size is how many rows the next claim may take. A batch that is too large as a whole, for its
// deadline or for max_allowed_packet, would fail for ever: so the next one is half as large, down
// to a single row, and they grow again with each one that goes well. One goroutine owns it.
type BatchSize struct{ most, now int }

// NewBatchSize returns a Size that begins with its most.
func NewBatchSize(most int) *BatchSize { return &BatchSize{most, most} }

// BatchSizeFrom returns a Size that begins with first.
func BatchSizeFrom(first, most int) *BatchSize { return &BatchSize{most, first} }

// Now returns how many rows the next claim may take.
func (s *BatchSize) Now() int { return s.now }

// Halve reports whether there was anything to halve.
func (s *BatchSize) Halve() bool {
	if s.now == 1 {
		return false
	}
	s.now /= 2
	return true
}

// Grow follows a batch that went well.
func (s *BatchSize) Grow() { s.now = min(2*s.now, s.most) }
