package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// beacons are the only keys that the worker itself stores; on a given Redis they go with the demo. It is a hook of the
// worker's client, which notes their names before they are stored. Safe for concurrent use.
type beacons struct {
	mu    sync.Mutex
	names map[string]bool
}

func (b *beacons) note(commands ...redis.Cmder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range commands {
		if args := c.Args(); c.Name() == "set" && len(args) > 1 {
			if name := fmt.Sprint(args[1]); strings.HasPrefix(name, "unstale:beacon:") {
				b.names[name] = true
			}
		}
	}
}

// DialHook implements redis.Hook.
func (b *beacons) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b *beacons) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		b.note(c)
		return next(ctx, c)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (b *beacons) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		b.note(commands...)
		return next(ctx, commands)
	}
}

// clear removes them. The worker must have stopped.
func (b *beacons) clear(ctx context.Context, client redis.UniversalClient) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.names {
		if err := client.Unlink(ctx, name).Err(); err != nil {
			return fmt.Errorf("remove the worker's beacons: %w", err)
		}
	}
	return nil
}
