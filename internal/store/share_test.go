package store_test

import (
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// A share is never rounded up: not to 100%, and not to another nine.
func TestShares(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]store.Share{
		"none":           {0, 0},
		"100%":           {7, 7},
		"0.0%":           {0, 7},
		"50.0%":          {1, 2},
		"66.6%":          {2, 3},
		"99.0%":          {99, 100},
		"98.9%":          {98_999, 100_000},
		"99.9%":          {999, 1000},
		"99.999%":        {100_999, 101_000},
		"99.8%":          {9989, 10_000},
		"99.99%":         {9999, 10_000},
		"99.998%":        {99_998, 100_000},
		"99.997%":        {999_979, 1_000_000},
		"99.99999%":      {9_999_999, 10_000_000},
		"99.999999999%":  {99_999_999_999, 100_000_000_000},
		"99.9999999999%": {999_999_999_999, 1_000_000_000_000},
	} {
		if got := s.String(); got != want {
			t.Errorf("%d of %d: %s, wanted %s", s.In, s.All, got, want)
		}
	}
}
