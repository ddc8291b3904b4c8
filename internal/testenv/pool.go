package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

const (
	// leaseTime is how long a database number stays taken after the process that took it was
	// killed. It must be longer than any test.
	leaseTime = 30 * time.Minute
	// poolWait bounds the wait for a number while other tests use all of them.
	poolWait = 2 * time.Minute
	// Key prefixes in the database that the URL names; a number follows.
	leasePrefix = "unstale:test:lease:"
	dirtyPrefix = "unstale:test:dirty:"
)

// A databasePool lends out the database numbers of one Redis server, which other test binaries may
// use at the same time. The owner of each number is recorded in the database that the URL names,
// which is never lent. A number is lent only if its database is empty or was filled by an earlier
// test: all other data on the server stays.
type databasePool struct {
	url     *url.URL
	options *redis.Options // of url
	home    *redis.Client
	product string // Redis or Valkey
	version string
	count   int // numbers below it exist
}

func newDatabasePool(ctx context.Context, address string) (*databasePool, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	p := &databasePool{url: u, options: options, home: redis.NewClient(options)}
	if err := p.inspect(ctx); err != nil {
		_ = p.home.Close()
		return nil, fmt.Errorf("connect to %s: %w", options.Addr, err)
	}
	return p, nil
}

// inspect reads the server's version and the number of its databases.
func (p *databasePool) inspect(ctx context.Context) error {
	info, err := p.home.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	p.product = servers.KindRedis.String()
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			p.version = value
		case "valkey_version": // follows redis_version
			p.product, p.version = "Valkey", value
		}
	}
	p.count = 16 // the default, because CONFIG may be forbidden
	if settings, err := p.home.ConfigGet(ctx, "databases").Result(); err == nil {
		if n, err := strconv.Atoi(settings["databases"]); err == nil {
			p.count = n
		}
	}
	return nil
}

func (p *databasePool) close() error { return p.home.Close() }

// forTest lends a number until the end of the test and returns its URL.
func (p *databasePool) forTest(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poolWait)
	defer cancel()
	owner := token()
	number, err := p.take(ctx, owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.give(ctx, number, owner); err != nil {
			t.Error(err)
		}
	})
	return p.name(number)
}

// take waits until a number is free, takes it and empties its database.
func (p *databasePool) take(ctx context.Context, owner string) (int, error) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		for number := range p.count {
			if number == p.options.DB {
				continue
			}
			ok, err := p.try(ctx, number, owner)
			if ok {
				return number, nil
			}
			if err != nil && ctx.Err() == nil {
				return 0, err
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("take a Redis database: all %d of %s are taken or hold other data (what a killed test had is free after %s): %w",
				p.count-1, p.options.Addr, leaseTime, context.Cause(ctx))
		}
	}
}

// try takes one number, if it is free and its database has no other data.
func (p *databasePool) try(ctx context.Context, number int, owner string) (bool, error) {
	lease, _ := p.marks(number)
	err := p.home.SetArgs(ctx, lease, owner, redis.SetArgs{Mode: "NX", TTL: leaseTime}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lease Redis database %d: %w", number, err)
	}
	ok, err := p.clear(ctx, number)
	if err != nil {
		err = fmt.Errorf("empty Redis database %d: %w", number, err)
	}
	if !ok {
		err = errors.Join(err, p.home.Del(context.WithoutCancel(ctx), lease).Err())
	}
	return ok, err
}

// clear empties a database, unless it has data that is not from a test.
func (p *databasePool) clear(ctx context.Context, number int) (bool, error) {
	_, dirty := p.marks(number)
	client := p.client(number)
	defer client.Close()
	size, err := client.DBSize(ctx).Result()
	if err != nil {
		return false, err
	}
	if size > 0 {
		ours, err := p.home.Exists(ctx, dirty).Result()
		if err != nil || ours == 0 {
			return false, err
		}
		if err := client.FlushDB(ctx).Err(); err != nil {
			return false, err
		}
	}
	if err := p.home.Set(ctx, dirty, "1", 0).Err(); err != nil {
		return false, err
	}
	return true, nil
}

// give empties a database and frees its number.
func (p *databasePool) give(ctx context.Context, number int, owner string) error {
	lease, dirty := p.marks(number)
	now, err := p.home.Get(ctx, lease).Result()
	if err != nil || now != owner {
		return fmt.Errorf("free Redis database %d: its lease of %s is gone: %w", number, leaseTime, err)
	}
	client := p.client(number)
	defer client.Close()
	if err := client.FlushDB(ctx).Err(); err != nil {
		return fmt.Errorf("empty Redis database %d: %w", number, err)
	}
	if err := p.home.Del(ctx, dirty, lease).Err(); err != nil {
		return fmt.Errorf("free Redis database %d: %w", number, err)
	}
	return nil
}

// marks returns two keys in the home database: one that records the owner of a number, and one that
// records that a test has written there.
func (p *databasePool) marks(number int) (lease, dirty string) {
	n := strconv.Itoa(number)
	return leasePrefix + n, dirtyPrefix + n
}

func (p *databasePool) client(number int) *redis.Client {
	options := *p.options
	options.DB = number
	return redis.NewClient(&options)
}

// name returns the URL of one database of the server.
func (p *databasePool) name(number int) string {
	u := *p.url
	u.Path = "/" + strconv.Itoa(number)
	query := u.Query()
	query.Del("db")
	u.RawQuery = query.Encode()
	return u.String()
}
