//go:build clockjump

package clock

import "time"

func init() { follow = func(offset *int64) { time.ClockJump = offset } }
