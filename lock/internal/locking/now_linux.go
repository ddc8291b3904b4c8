package locking

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started, including the time in which it was suspended.
// Nothing sets this clock. A lease runs on in Redis while the machine is suspended, and Go's
// monotonic clock does not count that time.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
