//go:build !linux

package locking

import "time"

var began = time.Now()

// Now returns the time since the program began, by a clock that nothing sets.
func Now() time.Duration { return time.Since(began) }
