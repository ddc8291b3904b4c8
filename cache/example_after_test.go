package cache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/cache"
)

// waiting is a Checker of writes that the worker has not come to yet. An application takes
// outbox.NewCheck(db, token).
type waiting struct{}

func (waiting) Settled(context.Context) (settled bool, left time.Duration, err error) {
	return false, time.Minute, nil
}

// Until a caller's own writes are settled, its loader is called.
func ExamplePolicy_After() {
	products, err := cache.New(cache.Config{}) // without a Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer products.Close()
	name, err := cache.Fetch(context.Background(), products, "product:42", func(ctx context.Context) (string, error) {
		return "what the primary has", nil
	}, cache.Moderate.After(waiting{}))
	fmt.Println(name, err, products.Statistics().Unsettled)
	// Output: what the primary has <nil> 1
}
