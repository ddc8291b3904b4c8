//go:build soak

package migrations_test

import (
	"strconv"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// Fifty pairs of migrators that start together on two nodes.
func TestFiftyPairsOnTwoNodes(t *testing.T) {
	nodes := testenv.OwnPrimaries(t)
	for i := range 50 {
		t.Run(strconv.Itoa(i), func(t *testing.T) { upOnBoth(t, nodes) })
	}
}
