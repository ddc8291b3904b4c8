package worker

// A batchSize is how many rows the next claim may take. A batch that is too large as a whole, for its deadline or for
// max_allowed_packet, would fail for ever: so the next one is half as large, down to a single row, and they grow again
// with each one that goes well. Owned by whoever runs the batches.
type batchSize struct{ most, now int }

func newBatchSize(most int) batchSize { return batchSize{most, most} }

// halve reports whether there was anything to halve.
func (s *batchSize) halve() bool {
	if s.now == 1 {
		return false
	}
	s.now /= 2
	return true
}

func (s *batchSize) grow() { s.now = min(2*s.now, s.most) }
