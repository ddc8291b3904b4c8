package locks

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lock"
)

// The settings of every library: locks that outlive every measurement.
const (
	ttl      = 30 * time.Second
	patience = ttl / 3 // for one answer
)

// A process is the state that one process of an application has: its own clients of the servers.
type process interface {
	// Lock returns when it has the lock of a name.
	Lock(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error)
	Close() error
}

// A peer is a library, used as its documentation says, but that it never gives up.
type peer struct {
	Name    string
	Kind    string // of the servers that it locks at
	Servers int    // of them
	Module  string // with its version, as in go.mod; none for ours
	Options string // that it is given
	Mint    bool   // its pairs show what a token of MySQL adds; the others are without
	open    func(s *site, clients []*redis.Client) (process, error)
}

// several is how many Redis a Redlock has here.
const several = 5

// The kinds of servers that keep locks.
const (
	inRedis     = "Redis"
	inZooKeeper = "ZooKeeper"
)

func peers() []peer {
	return []peer{
		{Name: "unstale", Kind: inRedis, Servers: 1, open: ours(false)},
		redsyncPeer(1),
		{
			Name: "redislock", Kind: inRedis, Servers: 1, Module: "github.com/bsm/redislock v0.9.4",
			Options: "LinearBackoff(100 ms), as its manual has it, without its limit",
			open: func(_ *site, clients []*redis.Client) (process, error) {
				return &redislockProcess{redislock.New(clients[0])}, nil
			},
		},
		{Name: "unstale, Redlock", Kind: inRedis, Servers: several, open: ours(false)},
		redsyncPeer(several),
		{
			Name: "unstale", Kind: inZooKeeper, Servers: ensemble,
			open: func(s *site, _ []*redis.Client) (process, error) { return oursInZooKeeper(s) },
		},
		{
			Name: "go-zookeeper", Kind: inZooKeeper, Servers: ensemble, Module: "github.com/go-zookeeper/zk v1.0.4", Options: "its Lock",
			open: func(s *site, _ []*redis.Client) (process, error) { return openZkLock(s) },
		},
		{Name: "unstale", Kind: inRedis, Servers: 1, Mint: true, open: ours(false)},
		{Name: "unstale, with a token", Kind: inRedis, Servers: 1, Mint: true, open: ours(true)},
	}
}

func redsyncPeer(servers int) peer {
	return peer{
		Name: "redsync", Kind: inRedis, Servers: servers, Module: "github.com/go-redsync/redsync/v4 v4.18.1",
		Options: "its own delays of 50 to 250 ms, without a limit of tries",
		open: func(_ *site, clients []*redis.Client) (process, error) {
			p := &redsyncProcess{}
			for _, client := range clients {
				p.pools = append(p.pools, goredis.NewPool(client))
			}
			return p, nil
		},
	}
}

func ours(mint bool) func(*site, []*redis.Client) (process, error) {
	return func(s *site, clients []*redis.Client) (process, error) {
		config := lock.Config{Backend: lock.Redis{Client: clients[0]}, TTL: ttl, Timeout: patience, Logger: slog.New(slog.DiscardHandler)}
		if len(clients) > 1 {
			config.Backend = lock.Redlock{Clients: clients}
		}
		if mint {
			dsn, err := mysql.ParseDSN(s.dsn)
			if err != nil {
				return nil, err
			}
			config.MySQL = dsn
		}
		l, err := lock.New(config)
		return &ourProcess{l}, err
	}
}

type ourProcess struct{ *lock.Locker }

func (p *ourProcess) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := p.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := held.Release()
		for err != nil && !errors.Is(err, lock.ErrLost) && ctx.Err() == nil { // no server has confirmed it
			err = held.Release()
		}
		return err
	}, nil
}

type redsyncProcess struct{ pools []redsyncredis.Pool }

func (p *redsyncProcess) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := redsync.New(p.pools...).NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		return err
	}, nil
}

func (p *redsyncProcess) Close() error { return nil }

type redislockProcess struct{ client *redislock.Client }

func (p *redislockProcess) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := p.client.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (p *redislockProcess) Close() error { return nil }
