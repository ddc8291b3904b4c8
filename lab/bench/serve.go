package bench

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/worker"
)

// serve runs a worker until the caller calls the returned function. The hook receives its commands
// to Redis.
func (s *shop) serve(ctx context.Context, hook redis.Hook, wake bool) (stop func() error, err error) {
	cfg := worker.Config{BatchRows: floorBatch}
	if !wake {
		cfg.WakeChannel = "-"
	}
	return s.serveWith(ctx, "server", hook, cfg)
}

// serveWith runs serve with a worker of any name and settings.
func (s *shop) serveWith(ctx context.Context, name string, hook redis.Hook, cfg worker.Config) (stop func() error, err error) {
	cfg.InstrumentRedis = func(c redis.UniversalClient) { c.AddHook(hook) }
	w, err := s.newWorker(name, couponMap, cfg)
	if err != nil {
		return nil, err
	}
	return during(ctx, w.Run), nil
}

// floorServe has the floor do it: the shortest loop around carryFloor, which makes one batch for
// all hints that wait, and polls every idle interval. The shop's client has the hook already.
func (f floorShop) serve(ctx context.Context, _ redis.Hook, wake bool) (stop func() error, err error) {
	defaults := worker.Config{}.WithDefaults()
	conn, err := f.conn(ctx)
	if err != nil {
		return nil, err
	}
	var hints <-chan *redis.Message
	end := conn.Close
	if wake {
		sub := f.shop.Subscribe(ctx, defaults.WakeChannel)
		hints = sub.Channel()
		end = func() error { return errors.Join(conn.Close(), sub.Close()) }
	}
	ended := during(ctx, func(ctx context.Context) error {
		ticker := time.NewTicker(defaults.IdleInterval)
		defer ticker.Stop()
		for seq := uint64(1); ; seq++ {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			case <-hints:
			}
			for len(hints) > 0 {
				<-hints
			}
			// a batch is never left half done
			if _, err := f.carry(context.WithoutCancel(ctx), conn, seq); err != nil {
				return err
			}
		}
	})
	return func() error { return errors.Join(ended(), end()) }, nil
}

// during runs do, with a context that ends when the function returned is called, which returns what
// do returned.
func during(ctx context.Context, do func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}
