package queue

import (
	"testing"
	"time"
)

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
