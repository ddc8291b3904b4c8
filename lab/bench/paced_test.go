package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A slow call delays no other while a goroutine is free. Otherwise the calls behind it are late by
// its duration, and none is left out.
func TestPaced(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for hands, want := range map[int][]time.Duration{
		2: {0, 0, 0, 0, 0, 0},
		1: {0, 7 * ms, 5 * ms, 3 * ms, 1 * ms, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			late, err := paced(t.Context(), 2*ms, len(want), hands, func(_ context.Context, i int) error {
				if i == 0 {
					time.Sleep(9 * ms)
				}
				return nil
			})
			if err != nil || !slices.Equal(late, want) {
				t.Errorf("%d hands: late by %v, %v", hands, late, err)
			}
		})
	}
}

func TestPacedEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := paced(t.Context(), time.Second, 1000, 3, func(_ context.Context, i int) error {
			if i == 5 {
				return broken
			}
			return nil
		})
		if took := time.Since(began); !errors.Is(err, broken) || took != 5*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var list []float64
	for i := 200; i > 0; i-- {
		list = append(list, float64(i))
	}
	for _, c := range []struct {
		list []float64
		want percentiles
	}{
		{list, percentiles{P50: 100, P99: 198, Max: 200, N: 200}},
		{list[198:], percentiles{P50: 1, P99: 2, Max: 2, N: 2}},
		{nil, percentiles{}},
	} {
		if got := percentilesOf(c.list); got != c.want {
			t.Errorf("percentiles of %d: %+v, wanted %+v", len(c.list), got, c.want)
		}
	}
	runs := []percentiles{{1, 30, 100, 7}, {3, 10, 50, 7}, {2, 20, 60, 7}}
	if got, want := medianOf(runs), (percentiles{2, 20, 100, 7}); got != want {
		t.Errorf("median of runs %+v, wanted %+v", got, want)
	}
}
