package conform

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

// clusterSchedules returns all orders of a read of two steps, a writer of two, and the three in
// which the slot of what is invalidated moves: the slot of the key, or of the version of its tag.
func clusterSchedules() (all []schedule) {
	able := func(ready Line) bool { return ready.Cluster }
	for i, order := range orders(nil, 2, 2, 3) {
		for _, kind := range []string{"", "/tag"} {
			all = append(all, schedule{fmt.Sprintf("cluster/%03d%s", i, kind), func(p *player) { p.inCluster().moveSlot(order, kind != "") }, able})
		}
	}
	return all
}

// inCluster returns a player with a Redis Cluster and one process of the client, which finds the
// nodes itself: the judge sees none of its commands, and holds only loads.
func (p *player) inCluster() *player {
	if p.moving == nil {
		c, err := rig.StartMasters(p.world.ctx)
		must(err)
		p.moving = newPlayer(openWorld(p.world.ctx, nil, c), p.command, p.ledger)
		p.moving.enlist()
	}
	p.moving.memories()
	return p.moving
}

// moveSlot plays an order. 0 is the reader, 1 the writer, 2 the slot. It moves from the first master
// to the last one, whose epoch is the greatest: no late message between them undoes that.
func (p *player) moveSlot(order []int, tagged bool) {
	const from, to = 0, rig.Masters - 1
	s := p.open(tagged)
	p.early = true
	for redis.HasErrorPrefix(p.world.cluster.Nodes[from].Client.Exists(p.world.ctx, s.name).Err(), "MOVED") {
		s.rename("'") // into another slot
	}
	slot := int(protocol.Slot(s.name))
	var r *call
	steps := [][]func(){
		{
			func() {
				r = s.ask(p.clients[0])
				p.until(func() bool { return !r.runs() || len(p.loads) > 0 }, none)
			},
			func() { p.complete(r) },
		},
		{func() { s.write(stepCommit) }, func() { s.write(stepUnlink) }},
		{
			// the masters know of it: keys that are made now are at the other one
			func() { must(p.world.cluster.OpenSlot(p.world.ctx, slot, from, to)) },
			func() { found(p.world.cluster.MoveKeys(p.world.ctx, slot, from, to)) },
			func() { must(p.world.cluster.CloseSlot(p.world.ctx, slot, from, to)) },
		},
	}
	for _, actor := range order {
		steps[actor][0]()
		steps[actor] = steps[actor][1:]
	}
	s.write(stepMessage)
	s.end(r)
	for _, node := range p.world.cluster.Nodes {
		if n := found(node.Client.InfoMap(p.world.ctx, "errorstats").Result())["Errorstats"]["errorstat_CROSSSLOT"]; n != "" {
			p.ledger.breach("names", "commands with keys in several slots were refused: %s", n)
		}
	}
	for range tries {
		if s.fetch(p.clients[0]).did.loads == 0 {
			return
		}
	}
	p.ledger.breach("stores", "each read of %q loads, although its slot has arrived", s.key)
}
