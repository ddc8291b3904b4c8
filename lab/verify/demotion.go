package verify

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/unstale/unstale/internal/proxy"
	"github.com/unstale/unstale/lab/rig"
)

// demoteMaster moves the workers to a replica that has all data. The old master keeps running, and
// readers keep their connections to it. No invalidation is lost: the workers have no connection
// while the replica is promoted.
func demoteMaster(ctx context.Context, t *turn) error {
	s := t.stage
	if err := t.followed(ctx); err != nil {
		return err
	}
	s.toRedis.Close()
	if _, err := s.spare.CaughtUp(ctx, s.redis, "verify:marker"); err != nil {
		return err
	}
	if err := s.spare.Promote(ctx); err != nil {
		return err
	}
	s.redis, s.spare = s.spare, s.redis
	if err := t.pointReaders(); err != nil {
		return err
	}
	for _, link := range []*proxy.Link{s.toRedis, s.toHear} {
		if err := link.Point(s.redis.Server.Addr()); err != nil {
			return err
		}
	}
	sleep(ctx, noticed+rig.Between(t.dice, time.Second, 3*time.Second))
	if err := s.spare.Server.Kill(); err != nil {
		return err
	}
	if err := s.spare.Forget(); err != nil {
		return err
	}
	return s.spare.Server.Restart(ctx)
}

// pointReaders directs new connections of readers to the master.
func (t *turn) pointReaders() error {
	if err := os.WriteFile(t.spec.Master+".new", []byte(t.stage.redis.Server.Addr()), 0o600); err != nil {
		return fmt.Errorf("point readers: %w", err)
	}
	return os.Rename(t.spec.Master+".new", t.spec.Master)
}

// missDatabase waits until readers must have noticed that workers use another database.
func missDatabase(ctx context.Context, t *turn) error {
	sleep(ctx, t.phase.bound+2*noticed)
	t.refuseHealthy("workers use another database")
	return nil
}
