// Command reader fetches one key through package cache and prints "found" or "loaded", and the
// value. The upgrade suite compiles it with two releases of the library, so it uses little of it.
//
//	reader REDIS_URL KEY VALUE [raw]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("arguments: must be REDIS_URL KEY VALUE [raw]")
	}
	options, err := redis.ParseURL(args[0])
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled, options.DialerRetries = true, 1
	client := redis.NewClient(options)
	// A value that is compressed has format 2 if it is raw.
	c, err := cache.New(cache.Config{
		Redis: client, CompressAbove: 64, RawValues: len(args) > 3, Timeout: 5 * time.Second, Lease: time.Second,
	})
	if err != nil {
		return err
	}
	said := "found"
	value, err := cache.Fetch(ctx, c, args[1], func(context.Context) (string, error) {
		said = "loaded"
		return strings.Repeat(args[2]+" ", 100), nil
	}, cache.MustPolicy(cache.Options{TTL: time.Hour}))
	if err == nil {
		fmt.Println(said, strings.Fields(value)[0])
	}
	return errors.Join(err, c.Close(), client.Close())
}
