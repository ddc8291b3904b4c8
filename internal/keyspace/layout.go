package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A layout maps the slots of a Cluster to masters, by the reply of each master. Masters are
// identified by their ID in the Cluster.
type layout struct {
	masters map[string]string          // address by id, also of those without slots
	owners  [protocol.SlotCount]string // empty: no master has the slot
	moves   []move                     // of slots that are on their way
}

// A move is the way of slots from one master to another.
type move struct{ from, to string }

var errNoMaster = errors.New("the cluster's nodes do not agree on who is a master")

// layout asks every master for its view.
func (s *Sweeper) layout(ctx context.Context) (*layout, error) {
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, err
	}
	l := &layout{masters: map[string]string{}}
	for _, m := range masters {
		text, err := m.ClusterNodes(ctx).Result()
		if err != nil {
			return nil, s.nodes.outage(ctx, err)
		}
		if err := l.add(text, m.Options().Addr); err != nil {
			s.nodes.cluster.ReloadState(ctx)
			return nil, &Outage{State: StateMoving, Err: fmt.Errorf("ask %s for its slots: %w", m.Options().Addr, err)}
		}
	}
	for _, m := range l.moves {
		if l.masters[m.from] == "" || l.masters[m.to] == "" {
			s.nodes.cluster.ReloadState(ctx)
			return nil, &Outage{State: StateMoving, Err: fmt.Errorf("slots move from %s to %s: %w", m.from, m.to, errNoMaster)}
		}
	}
	return l, nil
}

// add records the CLUSTER NODES reply of the node at address, and the addresses of the others. One
// line is
//
//	<id> <ip:port@cport,hostname> <flags> <master> <ping> <pong> <epoch> <link> <slot> <slot> ...
//
// A slot is 7, 0-5460, [93->-<id>] on its way to another node or [77-<-<id>] from it; the last two
// are only in the line of the node itself.
func (l *layout) add(nodes, address string) error {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		id, flags := fields[0], strings.Split(fields[2], ",")
		own, master := false, false
		for _, f := range flags {
			own, master = own || f == "myself", master || f == "master"
		}
		switch {
		case own && !master:
			return errNoMaster
		case own:
			l.masters[id] = address
			if err := l.addSlots(id, fields[8:]); err != nil {
				return fmt.Errorf("%w in %q", err, line)
			}
		case master && l.masters[id] == "" && fields[7] == "connected":
			// if it has slots, its own reply lists them
			l.masters[id], _, _ = strings.Cut(fields[1], "@")
		}
	}
	return nil
}

func (l *layout) addSlots(id string, fields []string) error {
	for _, f := range fields {
		if inner, ok := strings.CutPrefix(f, "["); ok {
			inner = strings.TrimSuffix(inner, "]")
			if _, to, ok := strings.Cut(inner, "->-"); ok {
				l.moves = append(l.moves, move{id, to})
			} else if _, from, ok := strings.Cut(inner, "-<-"); ok {
				l.moves = append(l.moves, move{from, id})
			}
			continue
		}
		low, high, isRange := strings.Cut(f, "-")
		first, err := strconv.ParseUint(low, 10, 14)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(high, 10, 14)
		}
		if err != nil {
			return err
		}
		for s := first; s <= last; s++ {
			l.owners[s] = id
		}
	}
	return nil
}

// movesSince returns the ways of slots that were open in before or in l, or that were gone between
// the two.
func (l *layout) movesSince(before *layout) map[move]bool {
	moves := map[move]bool{}
	for _, m := range before.moves {
		moves[m] = true
	}
	for _, m := range l.moves {
		moves[m] = true
	}
	for s, owner := range l.owners {
		if was := before.owners[s]; was != owner && was != "" && owner != "" {
			moves[move{was, owner}] = true
		}
	}
	return moves
}

// options returns those of a client to the master with the id.
func (l *layout) options(id string, like *redis.Options) *redis.Options {
	o := *like
	o.Addr = l.masters[id]
	// a node that does not know its own address
	if host, port, err := net.SplitHostPort(o.Addr); err == nil && host == "" {
		if common, _, err := net.SplitHostPort(like.Addr); err == nil {
			o.Addr = net.JoinHostPort(common, port)
		}
	}
	return &o
}
