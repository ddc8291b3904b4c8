package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// MySQLArgs leave durability to the operating system, which survives a killed process: no machine
// is killed.
var MySQLArgs = []string{"--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-buffer-pool-size=256M"}

const nodeStep = 20 * time.Millisecond // between two looks

// A Node is one Redis server, possibly a replica of another, with its own client that does not
// retry.
type Node struct {
	Server *servers.Redis
	Client *redis.Client
	Clock  *clock.File // sets the clock of the server; nil without NodeOptions.Library

	clockFile string
}

// NodeOptions configures a Node.
type NodeOptions struct {
	Library string   // result of clock.Library, for a server whose clock can be set
	Dir     string   // for the files of the server; empty: the system's
	Args    []string // further options of the server
}

// StartNode starts a server. The caller must Close it.
func StartNode(ctx context.Context, o NodeOptions) (n *Node, err error) {
	n = &Node{}
	var env []string
	if o.Library != "" {
		if err := n.makeClock(o.Dir); err != nil {
			return nil, err
		}
		env = []string{o.Library, n.Clock.Env()}
	}
	n.Server, err = servers.StartRedis(ctx, servers.RedisOptions{
		Dir: o.Dir, Env: env, Args: append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5"}, o.Args...),
	})
	if err != nil {
		return nil, errors.Join(err, n.closeClock())
	}
	n.Client = redis.NewClient(&redis.Options{
		Addr: n.Server.Addr(), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolSize: 64,
	})
	return n, nil
}

func (n *Node) makeClock(dir string) error {
	file, err := os.CreateTemp(dir, "unstale-clock-")
	if err != nil {
		return err
	}
	n.clockFile = file.Name()
	if n.Clock, err = clock.NewFile(n.clockFile); err != nil {
		err = errors.Join(err, os.Remove(n.clockFile))
	}
	return errors.Join(err, file.Close())
}

func (n *Node) closeClock() error {
	if n.Clock == nil {
		return nil
	}
	return errors.Join(n.Clock.Close(), os.Remove(n.clockFile))
}

// Close ends the server and the client.
func (n *Node) Close() error { return errors.Join(n.Client.Close(), n.Server.Close(), n.closeClock()) }

// Follow makes the node a replica of the server at addr.
func (n *Node) Follow(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		err = n.Client.Do(ctx, "replicaof", host, port).Err()
	}
	if err != nil {
		return fmt.Errorf("make a replica: %w", err)
	}
	return nil
}

// Promote makes a replica a master.
func (n *Node) Promote(ctx context.Context) error {
	if err := n.Client.Do(ctx, "replicaof", "no", "one").Err(); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	return nil
}

// CaughtUp waits until the node has everything that was written to its master before, and returns
// when it began to look. It writes a key of that name.
func (n *Node) CaughtUp(ctx context.Context, master *Node, marker string) (since time.Time, err error) {
	for {
		since = time.Now()
		info, err := n.Client.InfoMap(ctx, "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] == "up" {
			pipe := master.Client.Pipeline() // WAIT covers the writes of its connection
			pipe.Set(ctx, marker, strconv.FormatInt(since.UnixNano(), 10), 0)
			wait := pipe.Do(ctx, "wait", 1, 1000)
			if _, err = pipe.Exec(ctx); err == nil {
				if replicas, err := wait.Int(); err == nil && replicas >= 1 {
					return since, nil
				}
			}
		}
		if err := sleep.For(ctx, nodeStep); err != nil {
			return since, fmt.Errorf("wait for the replica: %w", err)
		}
	}
}

// Save writes a snapshot and returns when it was begun. While a replica is being filled there is no
// saving.
func (n *Node) Save(ctx context.Context) (time.Time, error) {
	for {
		began := time.Now()
		err := n.Client.Save(ctx).Err()
		if err == nil {
			return began, nil
		}
		if stopped := sleep.For(ctx, nodeStep); stopped != nil {
			return began, fmt.Errorf("save: %w; last: %w", stopped, err)
		}
	}
}

// Forget removes the snapshot that the node would load at its start.
func (n *Node) Forget() error {
	err := os.Remove(filepath.Join(filepath.Dir(n.Server.Socket()), "dump.rdb"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
