package verify

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// demoteMaster moves the workers to a replica that has all data. The old master keeps running, and
// readers keep their connections to it.
func demoteMaster(ctx context.Context, t *turn) error {
	if err := t.promoteSpare(ctx); err != nil {
		return err
	}
	if err := t.pointReaders(); err != nil {
		return err
	}
	if err := t.pointWorkers(); err != nil {
		return err
	}
	sleep(ctx, noticed+rig.Between(t.dice, time.Second, 3*time.Second))
	return t.retireSpare(ctx)
}

// demoteInPlace is like demoteMaster, but readers stay at the address of the old master, which
// becomes a replica that receives nothing.
func demoteInPlace(ctx context.Context, t *turn) error {
	if err := t.promoteSpare(ctx); err != nil {
		return err
	}
	t.stage.toSpare.Close()
	if err := t.stage.spare.Follow(ctx, t.stage.toSpare.Addr()); err != nil {
		return err
	}
	if err := t.pointWorkers(); err != nil {
		return err
	}
	sleep(ctx, t.phase.bound+rig.Between(t.dice, time.Second, 3*time.Second))
	t.refuseHealthy("its server is a replica")
	if err := t.pointReaders(); err != nil {
		return err
	}
	return t.retireSpare(ctx)
}

// promoteSpare promotes a replica that has all data. No invalidation is lost: the workers have no
// connection until pointWorkers.
func (t *turn) promoteSpare(ctx context.Context) error {
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
	return nil
}

// pointWorkers leads the links to the master.
func (t *turn) pointWorkers() error {
	for _, link := range []*servers.Link{t.stage.toRedis, t.stage.toHear} {
		if err := link.Point(t.stage.redis.Server.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// retireSpare restarts the old master without data.
func (t *turn) retireSpare(ctx context.Context) error {
	if err := t.stage.spare.Server.Kill(); err != nil {
		return err
	}
	if err := t.stage.spare.Forget(); err != nil {
		return err
	}
	return t.stage.spare.Server.Restart(ctx)
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
