package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// beacons are the keys that the worker itself stores: beacons, and its fields in shared hashes. On
// a given Redis they are removed with the demo. It is a hook of the worker's client, and records
// the names before they are stored. Safe for concurrent use.
type beacons struct {
	mu     sync.Mutex
	names  map[string]bool
	fields map[[2]string]bool // of hashes, with their names
}

func (b *beacons) note(commands ...redis.Cmder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range commands {
		args := c.Args()
		switch {
		case len(args) < 3 || !strings.HasPrefix(fmt.Sprint(args[1]), "unstale:"):
		case c.Name() == "set":
			b.names[fmt.Sprint(args[1])] = true
		case c.Name() == "hset":
			b.fields[[2]string{fmt.Sprint(args[1]), fmt.Sprint(args[2])}] = true
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

// clear removes the keys and fields. The worker must have stopped.
func (b *beacons) clear(ctx context.Context, client redis.UniversalClient) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.names {
		if err := client.Unlink(ctx, name).Err(); err != nil {
			return fmt.Errorf("remove the worker's beacons: %w", err)
		}
	}
	for f := range b.fields {
		if err := client.HDel(ctx, f[0], f[1]).Err(); err != nil {
			return fmt.Errorf("remove the worker's state: %w", err)
		}
	}
	return nil
}
