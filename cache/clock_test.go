package cache

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock follows Redis, independent of the machine clock. Redis is asked again after a while, or
// when the machine clock was set or the machine paused.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.start()
		if !c.due() || c.now() != time.Now().UnixMilli() {
			t.Error("nobody was asked, and the clocks do not agree")
		}
		sent := time.Now()
		time.Sleep(10 * time.Millisecond)
		theirs := time.Now().Add(time.Hour)
		c.heard(theirs.UnixMicro(), sent)
		if got, want := c.now(), theirs.Add(5*time.Millisecond).UnixMilli(); got != want || c.due() {
			t.Errorf("an hour ahead: got %d, wanted %d", got, want)
		}
		c.drift.Add(int64(2 * stepSize))
		if got, want := c.now(), theirs.Add(5*time.Millisecond).UnixMilli(); got != want || !c.due() {
			t.Errorf("after a step: got %d, wanted %d", got, want)
		}
		c.heard(time.Now().UnixMicro(), time.Now())
		time.Sleep(clockLife - time.Nanosecond)
		if c.due() {
			t.Error("asked too early")
		}
		time.Sleep(time.Nanosecond)
		if !c.due() {
			t.Error("not asked")
		}
	})
}
