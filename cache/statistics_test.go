package cache

import (
	"sync"
	"testing"
	"time"
)

// A value that L1 finds but does not return is never counted as a hit, not even briefly: a counter
// that decreases looks like a restart.
func TestHitsDoNotGoBack(t *testing.T) {
	t.Parallel()
	config := Config{Memory: Memory{Size: 10}}.WithDefaults()
	m := newMemory(config)
	t.Cleanup(m.close)
	m.obey(verdict{open: true})
	c := &Cache{config: config, memory: m}
	m.put("k", "v", []string{"t"}, m.mark(), time.Hour, 0, nil)
	if _, ok := inMemory[string](c, "k", config.Policy, 0); !ok {
		t.Fatal("the value is not there")
	}
	m.evictOwn([]string{"stamp:t"})
	m.put("other", "v", nil, m.mark(), time.Hour, 0, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20_000 {
				_, _ = inMemory[string](c, "k", config.Policy, 0)
				_, _ = inMemory[int](c, "other", config.Policy, 0)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		if s := c.Statistics(); s.L1Hits != 1 || s.TotalRequests != 1 {
			t.Fatalf("%+v", s)
		}
	}
}
