package spotcheck

import (
	"slices"
	"time"
)

// delays are when a check looks, after its batch was settled.
var delays = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// A sample is a token bucket with the checks that wait for a look. It holds the tokens of one
// second. Not safe for concurrent use.
type sample struct {
	rate   float64 // per second
	tokens float64
	filled time.Time
	queues [len(delays)][]*check // by the number of looks, the oldest first
}

// share returns how many keys of a batch to take: a quarter of the tokens. So each of many
// batches gives a key, and a few large ones give more.
func (s *sample) share(now time.Time) int {
	s.tokens = min(s.tokens+s.rate*now.Sub(s.filled).Seconds(), s.rate)
	s.filled = now
	if s.tokens < 1 {
		return 0
	}
	return int(s.tokens/4) + 1
}

func (s *sample) add(b *batch, keys []Key) {
	s.tokens -= float64(len(keys))
	for _, k := range keys {
		s.queues[0] = append(s.queues[0], &check{Key: k, batch: b})
	}
}

// due removes and returns the checks that are to look now, at most so many.
func (s *sample) due(now time.Time, most int) (list []*check) {
	for looks := range s.queues {
		queue := s.queues[looks]
		n := 0
		for n < len(queue) && len(list)+n < most && now.Sub(queue[n].batch.Ended) >= delays[looks] {
			n++
		}
		list = append(list, queue[:n]...)
		s.queues[looks] = slices.Delete(queue, 0, n)
	}
	return list
}

// wait puts checks back until their next look.
func (s *sample) wait(c *check) { s.queues[c.looks] = append(s.queues[c.looks], c) }

func (s *sample) isEmpty() bool {
	return !slices.ContainsFunc(s.queues[:], func(q []*check) bool { return len(q) > 0 })
}
