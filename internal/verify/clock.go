package verify

import (
	"time"

	"golang.org/x/sys/unix"
)

// A moment is a time of the machine's monotonic clock, which all processes share, in nanoseconds.
type moment = int64

func now() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every system that this package builds for has it
	}
	return ts.Nano()
}

// after is the moment that lies d after m.
func after(m moment, d time.Duration) moment { return m + d.Nanoseconds() }
