// Package batchsize bounds how much one batch takes.
package batchsize

// A Size is how many rows the next claim may take. A batch that is too large as a whole, for its
// deadline or for max_allowed_packet, would fail for ever: so the next one is half as large, down
// to a single row, and they grow again with each one that goes well. One goroutine owns it.
type Size struct{ most, now int }

// New returns a Size that begins with its most.
func New(most int) *Size { return &Size{most, most} }

// From returns a Size that begins with first.
func From(first, most int) *Size { return &Size{most, first} }

// Now returns how many rows the next claim may take.
func (s *Size) Now() int { return s.now }

// Halve reports whether there was anything to halve.
func (s *Size) Halve() bool {
	if s.now == 1 {
		return false
	}
	s.now /= 2
	return true
}

// Grow follows a batch that went well.
func (s *Size) Grow() { s.now = min(2*s.now, s.most) }
