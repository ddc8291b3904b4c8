package limit_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/limit"
)

// A code is sent where the number may have one more.
func ExampleLimiter_Take() {
	ctx := context.Background()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL")) // of the instance that keeps state
	if err != nil {
		log.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer client.Close()
	codes, err := limit.New(limit.Config{Redis: client, Prefix: "zahraah:limit:code:", Max: 5, Window: time.Hour, WhenAway: limit.Refuse})
	if err != nil {
		log.Fatal(err)
	}
	d, err := codes.Take(ctx, "+49 30 1234567")
	switch {
	case err != nil:
		log.Fatal(err)
	case d.Allowed:
		fmt.Println("sending the code; more now:", d.Remaining)
	default:
		fmt.Println("too many; try again in", d.RetryAfter.Round(time.Second))
	}
}
