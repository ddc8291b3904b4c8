package conform

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

// The steps of a slot that moves to another master.
const (
	slotOpens  = iota // the masters know of it: keys that are made now are at the other one
	slotMoves         // its keys move
	slotCloses        // the masters know that it has moved
	slotSteps
)

// The steps of a read in a Cluster.
const (
	stepUntilLoad = iota
	stepUntilEnd
	wholeSteps
)

// clusterSchedules returns all orders of a read, a writer, and the slot of the key.
func clusterSchedules() (all []schedule) {
	able := func(ready Line) bool { return ready.Cluster }
	for i, order := range orders(nil, wholeSteps, stepMessage, slotSteps) {
		all = append(all, schedule{fmt.Sprintf("cluster/%03d", i), func(p *player) error {
			q, err := p.inCluster()
			if err == nil {
				err = q.moveSlot(order)
			}
			return err
		}, able})
	}
	return all
}

// inCluster returns a player with a Redis Cluster and one process of the client, which finds the
// nodes itself: the judge sees none of its commands, and holds only loads.
func (p *player) inCluster() (*player, error) {
	if p.moving != nil {
		_, err := p.moving.memories()
		return p.moving, err
	}
	c, err := rig.StartMasters(p.ctx)
	if err != nil {
		return nil, err
	}
	w := &world{cluster: c, addr: c.Addrs()[0], admin: c.Client, channel: p.world.channel + ":cluster", rows: p.world.rows, epoch: p.world.epoch, lease: mapLease}
	var beating sync.WaitGroup
	beating.Go(func() { w.heartbeats(p.working) })
	w.end = func() error { beating.Wait(); return c.Close() }
	p.moving = newPlayer(p.ctx, w, p.ledger)
	return p.moving, p.moving.enlist(p.command, p.working)
}

// moveSlot plays an order. 0 is the reader, 1 the writer, 2 the slot. It moves from the first master
// to the last one, whose epoch is the greatest: no late message between them undoes that.
func (p *player) moveSlot(order []int) error {
	const from, to = 0, rig.Masters - 1
	c, s := p.world.cluster, p.open(false)
	p.early = true
	for redis.HasErrorPrefix(c.Nodes[from].Client.Exists(p.ctx, s.key).Err(), "MOVED") {
		s.rename("'") // into another slot
	}
	slot := int(protocol.Slot(s.key))
	var r *read
	steps := [][]func() error{
		{
			func() (err error) {
				if r, err = p.ask(p.clients[0], s); err != nil {
					return err
				}
				return p.until(func() bool { return !r.runs() || len(p.loads) > 0 }, nil)
			},
			func() error { return p.complete(r) },
		},
		{func() error { return s.write(stepCommit) }, func() error { return s.write(stepUnlink) }},
		{
			func() error { return c.OpenSlot(p.ctx, slot, from, to) },
			func() error { _, err := c.MoveKeys(p.ctx, slot, from, to); return err },
			func() error { return c.CloseSlot(p.ctx, slot, from, to) },
		},
	}
	for _, actor := range order {
		if err := steps[actor][0](); err != nil {
			return err
		}
		steps[actor] = steps[actor][1:]
	}
	if err := errors.Join(s.write(stepMessage), s.end(r)); err != nil {
		return err
	}
	for range tries {
		if r, err := s.fetch(p.clients[0]); err != nil || r.did.loads == 0 {
			return err
		}
	}
	p.ledger.breach("stores", "each read of %q loads, although its slot has arrived", s.key)
	return nil
}
