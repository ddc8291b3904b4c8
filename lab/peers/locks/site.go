package locks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/migrations"
)

// A site is private servers: several Redis, ZooKeeper, and a database for tokens.
type site struct {
	redis     []*servers.Redis
	admins    []*redis.Client
	zookeeper *servers.ZooKeeper
	mysql     *servers.MySQL
	dsn       string
	requests  atomic.Int64 // that clients of the site have sent
}

func openSite(ctx context.Context, flavor servers.Kind) (s *site, err error) {
	s = &site{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for range several {
		server, err := servers.StartRedis(ctx, servers.RedisOptions{})
		if err != nil {
			return s, err
		}
		s.redis = append(s.redis, server)
		s.admins = append(s.admins, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	}
	if s.zookeeper, err = servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Servers: ensemble}); err != nil {
		return s, err
	}
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: flavor}); err != nil {
		return s, err
	}
	admin, err := sql.Open("mysql", s.mysql.DSN(""))
	if err != nil {
		return s, err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE locks"); err != nil {
		return s, err
	}
	s.dsn = s.mysql.DSN("locks")
	db, err := sql.Open("mysql", s.dsn)
	if err != nil {
		return s, err
	}
	defer db.Close()
	_, err = migrations.Up(ctx, db)
	return s, err
}

func (s *site) close() (err error) {
	for _, admin := range s.admins {
		err = errors.Join(err, admin.Close())
	}
	for _, server := range s.redis {
		err = errors.Join(err, server.Close())
	}
	if s.zookeeper != nil {
		err = errors.Join(err, s.zookeeper.Close())
	}
	if s.mysql != nil {
		err = errors.Join(err, s.mysql.Close())
	}
	return err
}

// open makes a process of a peer, which close ends with its clients.
func (s *site) open(p peer) (one process, closeAll func() error, err error) {
	var clients []*redis.Client
	for _, server := range s.redisOf(p) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		client.AddHook(counter{&s.requests})
		clients = append(clients, client)
	}
	if one, err = p.open(s, clients); err != nil {
		return nil, nil, err
	}
	return one, func() error {
		err := one.Close()
		for _, client := range clients {
			err = errors.Join(err, client.Close())
		}
		return err
	}, nil
}

// redisOf returns the servers on which a peer locks.
func (s *site) redisOf(p peer) []*servers.Redis {
	if p.Kind != inRedis {
		return nil
	}
	return s.redis[:p.Servers]
}

// A counter counts the commands that a client sends.
type counter struct{ n *atomic.Int64 }

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

var statLine = regexp.MustCompile(`(?m)^cmdstat_(?:(hello|client\|\w+|info)|[^:]+):calls=(\d+),`)

// commands returns how many commands the servers of a kind have run, except handshakes and the
// queries of this program. ZooKeeper runs each request as one command.
func (s *site) commands(ctx context.Context, kind string) (total int64, err error) {
	if kind == inZooKeeper {
		return s.requests.Load(), nil
	}
	for _, admin := range s.admins {
		text, err := admin.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, err
		}
		for _, found := range statLine.FindAllStringSubmatch(text, -1) {
			if found[1] != "" {
				continue
			}
			n, err := strconv.ParseInt(found[2], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", found[0], err)
			}
			total += n
		}
	}
	return total, nil
}
