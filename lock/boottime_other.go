//go:build !linux

package lock

import "time"

var began = time.Now()

// now is the time since the program began, by a clock that nothing sets.
func now() time.Duration { return time.Since(began) }
