package lock

import (
	"testing"
	"time"
)

// Each duration counts below every bound that it does not exceed.
func TestDurations(t *testing.T) {
	t.Parallel()
	bounds := DurationBounds()
	if bounds[0] != time.Millisecond || bounds[1] != 4*time.Millisecond || bounds[9] != 262144*time.Millisecond {
		t.Errorf("%v", bounds)
	}
	var d durations
	for _, took := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, bounds[8], bounds[9], bounds[9] + 1} {
		d.observe(took)
	}
	want := Durations{Count: 6, Sum: 2*time.Millisecond + 1 + bounds[8] + 2*bounds[9] + 1, Below: [10]uint64{2, 3, 3, 3, 3, 3, 3, 3, 4, 5}}
	if got := d.snapshot(); got != want {
		t.Errorf("%+v, wanted %+v", got, want)
	}
}
