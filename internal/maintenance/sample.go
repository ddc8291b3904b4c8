package maintenance

import (
	"slices"
	"time"
)

// delays are when a check looks, after its batch was settled.
var delays = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// spareFor is how long keys of a batch wait for tokens that later batches do not need.
const spareFor = 10 * time.Second

// A sample is a token bucket with the checks that wait for a look. It holds the tokens of one
// second. Not safe for concurrent use.
type sample struct {
	rate   float64 // per second
	tokens float64
	filled time.Time
	queues [len(delays)][]*check // by the number of looks, the oldest first
	spare  []*check              // that wait for tokens, the oldest first
}

func (s *sample) fill(now time.Time) {
	s.tokens = min(s.tokens+s.rate*now.Sub(s.filled).Seconds(), s.rate)
	s.filled = now
}

// share returns how many keys of a batch to take: a quarter of the tokens. So each of many
// batches gives a key, and a few large ones give more. If tokens are left, spare is how many more
// keys can wait for them.
func (s *sample) share(now time.Time) (n, spare int) {
	if s.fill(now); s.tokens < 1 {
		return 0, 0
	}
	if n = int(s.tokens/4) + 1; s.tokens-float64(n) >= 1 {
		spare = max(int(s.rate*spareFor.Seconds())-len(s.spare), 0)
	}
	return n, spare
}

// add adds the checks of a batch: n of them, and the rest as spare ones.
func (s *sample) add(b *batch, n int, keys []SpotKey) {
	for i, k := range keys {
		one := &check{SpotKey: k, batch: b}
		if i >= n {
			s.spare = append(s.spare, one)
			continue
		}
		s.tokens--
		s.queues[0] = append(s.queues[0], one)
	}
}

// spend adds spare checks for all tokens that are left.
func (s *sample) spend(now time.Time) {
	s.fill(now)
	n := 0
	for ; n < len(s.spare) && s.tokens >= 1; n++ {
		if now.Sub(s.spare[n].batch.Ended) < spareFor {
			s.tokens--
			s.queues[0] = append(s.queues[0], s.spare[n])
		}
	}
	s.spare = slices.Delete(s.spare, 0, n)
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
	return len(s.spare) == 0 && !slices.ContainsFunc(s.queues[:], func(q []*check) bool { return len(q) > 0 })
}
