package store

import (
	"testing"
	"time"
)

// The clock may have been set back before the first reading, and is set back if a reading is earlier
// than this process's clock allows.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := &Queue{}
	for i, c := range []struct {
		ahead time.Duration
		want  bool
	}{{0, true}, {0, false}, {time.Hour, false}, {time.Hour - createdSlack/2, false}, {time.Hour - 3*createdSlack, true}, {0, true}, {0, false}} {
		s.clock.observe(time.Now(), time.Now().Add(c.ahead))
		if got := s.ClockSetBack(); got != c.want {
			t.Errorf("reading %d: set back %v, wanted %v", i, got, c.want)
		}
	}
}

// A row's age is by the database's clock, no matter how wrong this process's clock is.
func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &Queue{}
	s.clock.observe(now, time.Now().Add(-time.Hour))
	for _, c := range []struct{ created, age time.Duration }{
		{-time.Hour - time.Minute, time.Minute},
		{time.Minute, 0}, // ahead
	} {
		row := &ClaimedRow{CreatedAt: now.Add(c.created)}
		if age := s.Age(row, now); age < c.age-time.Second || age > c.age+time.Second {
			t.Errorf("a row of %v has the age %v", c.created, age)
		}
	}
}
