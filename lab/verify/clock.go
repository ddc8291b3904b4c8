package verify

import (
	"time"

	"golang.org/x/sys/unix"
)

// A moment is a time of the monotonic clock of the machine, which all processes share, in
// nanoseconds.
type moment = int64

func now() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // exists on every supported system
	}
	return ts.Nano()
}

// after returns the moment d after m.
func after(m moment, d time.Duration) moment { return m + d.Nanoseconds() }
