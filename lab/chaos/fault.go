package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

// A fault breaks something, holds it broken and repairs it.
type fault struct {
	name        string
	least, most time.Duration // of the hold
	play        func(ctx context.Context, s *stage, hold time.Duration) error
}

// ofServer are the faults of a database that is one server.
var ofServer = []fault{
	{"mysql killed", 0, time.Second, killMySQL},
	{"mysql killed", 0, 2 * time.Second, killMySQL},
	{"table locked", time.Second, 3 * time.Second, lockTable},
	{"commits hang", time.Second, 4 * time.Second, holdCommits},
	{diskFull, time.Second, 4 * time.Second, fillDisk},
}

// faults are those of each deck: each happens once a deck.
var faults = []fault{
	{"mysql cut", 0, time.Second, onMySQL(func(l *servers.Link) error { l.Close(); return nil }, (*servers.Link).Open)},
	{"mysql swallowed", time.Second, 5 * time.Second, onMySQL((*servers.Link).Swallow, nil)},
	{"mysql slow", time.Second, 3 * time.Second, onMySQL(func(l *servers.Link) error { return l.Slow(300) }, nil)},
	{"mysql torn", time.Second, 2 * time.Second, onMySQL(func(l *servers.Link) error { return l.Tear(700) }, nil)},
	{"redis killed, empty", 0, time.Second, killRedis(empty)},
	{"redis killed, fresh snapshot", 0, time.Second, killRedis(fresh)},
	{"redis killed, old snapshot", 500 * time.Millisecond, 3 * time.Second, killRedis(old)},
	{"redis failed over, lagging", 300 * time.Millisecond, 2 * time.Second, failOver(false)},
	{"redis failed over, lagging, old master at work", 300 * time.Millisecond, 2 * time.Second, failOver(true)},
	{"redis cut", 0, time.Second, onRedis(func(l *servers.Link) error { l.Close(); return nil }, (*servers.Link).Open)},
	{"redis swallowed", time.Second, 3 * time.Second, onRedis((*servers.Link).Swallow, nil)},
	{"redis slow", time.Second, 3 * time.Second, onRedis(func(l *servers.Link) error { return l.Slow(250) }, nil)},
	{"redis torn", time.Second, 2 * time.Second, onRedis(func(l *servers.Link) error { return l.Tear(300) }, nil)},
	{"redis full", time.Second, 2 * time.Second, fillRedis},
	{"redis clock ahead", time.Second, 3 * time.Second, setClock(+1)},
	{"redis clock back", time.Second, 3 * time.Second, setClock(-1)},
	{"map reloaded", 2500 * time.Millisecond, 4 * time.Second, reloadMap},
}

// diskFull is the name of the fault that takes the privilege to mount.
const diskFull = "disk full"

// deck returns the faults that the stage supports.
func (s *stage) deck() []fault {
	switch {
	case s.cluster == nil:
		return slices.DeleteFunc(slices.Concat(faults, ofServer), func(f fault) bool { return f.name == diskFull && s.disk == nil })
	case s.cluster.proxy != nil:
		return slices.Concat(faults, inCluster, []fault{planned})
	default:
		return slices.Concat(faults, inCluster)
	}
}

// onMySQL and onRedis disturb a link of the workers. Nil heals by ending every disturbance.
func onMySQL(disturb, repair func(*servers.Link) error) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		return onLink(ctx, s.toMySQL, hold, disturb, repair)
	}
}

func onRedis(disturb, repair func(*servers.Link) error) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		return onLink(ctx, s.toRedis, hold, disturb, repair)
	}
}

func onLink(ctx context.Context, l *servers.Link, hold time.Duration, disturb, repair func(*servers.Link) error) error {
	if err := disturb(l); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	if repair != nil {
		return repair(l)
	}
	return l.Heal(ctx)
}

func killMySQL(ctx context.Context, s *stage, hold time.Duration) error {
	if err := s.mysql.Kill(); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	return s.mysql.Restart(ctx)
}

// lockTable locks the outbox for all sessions, including the shop's.
func lockTable(ctx context.Context, s *stage, hold time.Duration) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 60; LOCK TABLES cache_outbox WRITE"); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "UNLOCK TABLES")
	return err
}

// The data of a killed Redis after its restart.
const (
	empty = iota
	fresh // everything that was set before the kill
	old   // what was set before the hold
)

func killRedis(data int) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		master, _ := s.roles()
		var kept time.Time // what was set before survives
		if data != empty {
			var err error
			if kept, err = master.Save(ctx); err != nil {
				return err
			}
		}
		if data == old {
			if err := sleep.For(ctx, hold); err != nil {
				return err
			}
		}
		if err := master.Server.Kill(); err != nil {
			return err
		}
		if data == empty {
			if err := master.Forget(); err != nil {
				return err
			}
		}
		if data != old {
			if err := sleep.For(ctx, hold); err != nil {
				return err
			}
		}
		if err := master.Server.Restart(ctx); err != nil {
			return err
		}
		s.lost(kept)
		return nil
	}
}

// failOver promotes a replica that lags by hold. With split, the workers continue with the old
// master for a while, as clients do until they learn of the failover.
func failOver(split bool) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		kept, err := s.synced(ctx)
		if err != nil {
			return err
		}
		if err := s.toMaster.Swallow(); err != nil {
			return err
		}
		if err := sleep.For(ctx, hold); err != nil {
			return err
		}
		was, is := s.roles()
		if !split {
			if err := was.Server.Kill(); err != nil {
				return err
			}
		}
		if err := is.Promote(ctx); err != nil {
			return err
		}
		s.swap()
		s.lost(kept)
		if split {
			if err := sleep.For(ctx, hold/2); err != nil {
				return err
			}
		}
		if err := s.toRedis.Point(is.Server.Addr()); err != nil {
			return err
		}
		return s.demote(ctx, was, is)
	}
}

// demote brings the old master back as an empty replica of the new one.
func (s *stage) demote(ctx context.Context, was, is *rig.Node) error {
	if err := was.Server.Kill(); err != nil {
		return err
	}
	s.toMaster.Calm(ctx)
	if err := s.toMaster.Point(is.Server.Addr()); err != nil {
		return err
	}
	if err := was.Forget(); err != nil {
		return err
	}
	if err := was.Server.Restart(ctx); err != nil {
		return err
	}
	return was.Follow(ctx, s.toMaster.Addr())
}

// fillRedis makes Redis refuse writes because it has no memory left.
func fillRedis(ctx context.Context, s *stage, hold time.Duration) error {
	master, _ := s.roles()
	if err := master.Client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	return master.Client.ConfigSet(ctx, "maxmemory", "0").Err()
}

// setClock sets the clock of the master forward or back by twenty times as long as it stays so.
func setClock(sign time.Duration) func(context.Context, *stage, time.Duration) error {
	return func(ctx context.Context, s *stage, hold time.Duration) error {
		master, _ := s.roles()
		master.Clock.Set(sign * 20 * hold)
		defer master.Clock.Set(0)
		return sleep.For(ctx, hold)
	}
}

// reloadMap gives the workers a map with another hold and one more entity for a while.
func reloadMap(ctx context.Context, s *stage, hold time.Duration) error {
	if err := s.remap(otherMap); err != nil {
		return err
	}
	if err := sleep.For(ctx, hold); err != nil {
		return err
	}
	return s.remap(workerMap)
}
