package cache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// Values that come while a pipeline is under way share the next one, and each caller gets its own
// answer. An ended or panicking pipeline does not stop the next.
func TestFillQueue(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	c, err := New(Config{Redis: client, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	first, goOn, pipelines := make(chan struct{}), make(chan struct{}), 0
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(func() { release(); _ = c.Close() })
	c.redis.hooks.Redis = func(ctx context.Context, _ string) (context.Context, func(error)) { // unguarded
		if pipelines++; pipelines == 1 { // one at a time
			close(first)
			<-goOn
			panic("no tracer")
		}
		return ctx, nil
	}
	q := newFillQueue(c.leases)
	fill := func(key, lease string, queued func()) filling {
		c := claim{names: namesOf(key), lease: lease}
		return q.fill(t.Context(), parcel{claim: &c, text: []byte("v"), life: time.Minute}, queued)
	}
	var all, queued sync.WaitGroup
	all.Go(func() {
		if got := fill("first", "x", func() {}); got.err == nil {
			t.Errorf("a panic is %+v", got)
		}
	})
	<-first
	const most = 99
	queued.Add(most)
	for i := range most {
		key := fmt.Sprint("k", i)
		if i > 0 {
			if err := client.Set(t.Context(), namesOf(key).lease, "lease", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			if got := fill(key, "lease", queued.Done); got.err != nil || got.accepted != (i > 0) {
				t.Errorf("%s: %+v", key, got)
			}
		})
	}
	queued.Wait()
	release()
	all.Wait()
	if pipelines != 2 {
		t.Errorf("%d pipelines, wanted 2", pipelines)
	}
}
