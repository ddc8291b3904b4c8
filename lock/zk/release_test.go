package zk_test

import (
	"testing"

	"github.com/unstale/unstale/lock/internal/locktest"
)

// A section whose release gets no answer has done its work, and Do returns what it returned.
func TestUnconfirmedRelease(t *testing.T) {
	t.Parallel()
	w, cut := newWorld(t), &locktest.Chasm{}
	backend := w.backend
	backend.Dial = cut.Dial
	w.Backend = backend
	w.UnconfirmedRelease(cut)
}
