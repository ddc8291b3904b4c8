package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is the time since the machine was started, that in which it was suspended included. Nothing sets this clock, and
// a lease runs on in Redis while the machine is suspended, which Go's monotonic clock would not count.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
