package cache

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// The maxima of one pipeline: commands, and bytes of values. Timeout is for each pipeline, and a
// larger one would take longer. A larger value has its own.
const (
	pipelineMost  = 500
	pipelineBytes = 256 << 10
)

// pipelines calls send for each pipeline of items, in their order. A failure does not stop it, since
// one large value may be the reason. Two failures in a row stop it, and so does a pipeline that was
// not sent. It returns the items that it did not reach.
func pipelines[T any](items []T, size func(T) int, send func([]T) error) (rest []T) {
	for failed := 0; len(items) > 0 && failed < 2; {
		n, bytes := 1, size(items[0])
		for n < min(len(items), pipelineMost) && bytes < pipelineBytes {
			if bytes += size(items[n]); bytes <= pipelineBytes {
				n++
			}
		}
		err := send(items[:n])
		items = items[n:]
		switch {
		case err == nil:
			failed = 0
		case errors.As(err, new(unsent)):
			return items
		default:
			failed++
		}
	}
	return items
}

// sizes estimate how many bytes the values of keys have. Safe for concurrent use.
type sizes struct {
	mu    sync.Mutex
	large map[string]int // by the name of the key
	usual int            // the moving average of the others
}

const (
	largeBytes = 1 << 10
	largeMost  = 16_384 // names in sizes.large
)

// of returns the size of the value of a key.
func (s *sizes) of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.large[name], s.usual)
}

// ofAnswer returns the size of the answer to a request for a lease.
func (s *sizes) ofAnswer(c *claim) int {
	if !c.unread {
		return 0
	}
	return s.of(c.names.value)
}

// saw records the values that a pipeline has brought, and reports whether there are any. If it took
// too long, the first missing one may be too large for any pipeline with others.
func (s *sizes) saw(rs requests, cmds []redis.Cmder, late bool) (any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.large == nil || len(s.large) > largeMost {
		s.large = map[string]int{}
	}
	sum, count, missed := 0, 0, false
	for i, r := range rs {
		n, known := len(cmds[i].(*redis.StringCmd).Val()), s.large[r.name]
		any = any || n > 0
		switch {
		case n == 0 && !errors.Is(cmds[i].Err(), redis.Nil):
			if late && !missed {
				s.large[r.name], missed = pipelineBytes, true
			}
			continue
		case n >= largeBytes:
			s.large[r.name] = n
		case known > 0:
			delete(s.large, r.name)
		}
		if known == 0 && n > 0 {
			sum, count = sum+n, count+1
		}
	}
	switch {
	case count > 0 && late:
		s.usual = sum / count
	case count > 0:
		s.usual += (sum/count - s.usual) / 4
	}
	return any
}

// callKey is the key of a context for the commands of one call. Its value reports whether one of them
// has failed.
type callKey struct{}

// asOneCall returns a context for commands of which the breaker counts at most one failure.
func asOneCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, new(atomic.Bool))
}

// failedBefore records that a command has failed, and reports whether another one of its call has.
func failedBefore(ctx context.Context) bool {
	call, _ := ctx.Value(callKey{}).(*atomic.Bool)
	return call != nil && call.Swap(true)
}
