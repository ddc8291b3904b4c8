package keyspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Contents reads what Redis holds, and changes nothing.
type Contents struct {
	nodes  *Nodes
	budget *budget
}

// expectSingle detects a node of a Cluster behind a URL of a single server: it redirects clients
// that ask for keys of all slots, and answers a SCAN as if its keys were all keys.
func (c *Contents) expectSingle(ctx context.Context) error {
	if c.nodes.cluster != nil {
		return nil
	}
	const some = 20 // a node with half of the slots has all of them once in a million times
	commands := make([]redis.Cmder, some)
	for i := range commands {
		commands[i] = redis.NewStringCmd(ctx, "get", fmt.Sprint(beaconPrefix, i))
	}
	if err := c.nodes.exec(ctx, c.nodes.client, commands); err != nil {
		return err
	}
	for _, command := range commands {
		if o := outage(command.Err()); command.Err() != nil && o.State == StateMoving {
			return c.nodes.outage(ctx, o)
		}
	}
	return nil
}

// expectWhole is like expectSingle, for an account without GET, which cannot detect it.
func (c *Contents) expectWhole(ctx context.Context) error {
	err := c.expectSingle(ctx)
	var o *Outage
	if errors.As(err, &o) && o.State == StateNoPerm {
		return nil
	}
	return err
}
