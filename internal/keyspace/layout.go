package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A layout is which masters of a Cluster have which slots, by the reply of each. Masters are
// identified by their ID in the Cluster.
type layout struct {
	masters map[string]string            // address by id, also of those without slots
	homes   [protocol.SlotCount][]string // its owners, and the destination of its move
	leaving [protocol.SlotCount]string   // the owner that it moves from
	told    [protocol.SlotCount]string   // the owner, by another master's reply
}

var errNoMaster = errors.New("the cluster's nodes do not agree on who is a master")

// layout asks every master for its view. The others' views count for a slot that moved while they
// were asked, so its owners did not list it.
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
			return nil, s.moving(ctx, fmt.Errorf("ask %s for its slots: %w", m.Options().Addr, err))
		}
	}
	for slot, id := range l.told {
		if len(l.homes[slot]) == 0 && l.masters[id] != "" {
			l.homes[slot] = []string{id}
		}
	}
	return l, nil
}

// moving returns an *Outage, and asks for the nodes again.
func (s *Sweeper) moving(ctx context.Context, err error) *Outage {
	s.nodes.cluster.ReloadState(ctx)
	return &Outage{State: StateMoving, Err: err}
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
		own, master := slices.Contains(flags, "myself"), slices.Contains(flags, "master")
		switch {
		case own && !master:
			return errNoMaster
		case own:
			l.masters[id] = address
		case master && l.masters[id] == "" && fields[7] == "connected":
			// if it has slots, its own reply lists them
			l.masters[id], _, _ = strings.Cut(fields[1], "@")
		}
		if err := l.addSlots(id, own, fields[8:]); err != nil {
			return fmt.Errorf("%w in %q", err, line)
		}
	}
	return nil
}

// addSlots records the slots in the line of a master, which is its own or another one's.
func (l *layout) addSlots(id string, own bool, fields []string) error {
	for _, f := range fields {
		inner, moves := strings.CutPrefix(strings.TrimSuffix(f, "]"), "[")
		low, rest, isRange := strings.Cut(inner, "-")
		first, err := strconv.ParseUint(low, 10, 14)
		last := first
		if err == nil && isRange && !moves {
			last, err = strconv.ParseUint(rest, 10, 14)
		}
		if err != nil {
			return err
		}
		to, leaves := strings.CutPrefix(rest, ">-")
		for s := int(first); s <= int(last); s++ {
			switch {
			case !own:
				l.told[s] = id
			case moves && leaves:
				l.leaving[s] = id
				l.homes[s] = append(l.homes[s], to)
			default:
				l.homes[s] = append(l.homes[s], id)
			}
		}
	}
	return nil
}

// due returns where the slots are that stays have not seen, or all slots without any stay.
func (l *layout) due(stays map[string]*stay) (map[string]*stay, error) {
	due := map[string]*stay{}
	for slot, homes := range l.homes {
		strayed := stays == nil
		for _, s := range stays {
			strayed = strayed || s.gone[slot] || s.left[slot]
		}
		if strayed && stays != nil && len(homes) == 0 {
			return nil, fmt.Errorf("slot %d: %w", slot, errNoMaster)
		}
		for _, id := range homes {
			// what has not left yet was seen
			if s := stays[id]; !strayed || s != nil && s.left[slot] && !s.gone[slot] && l.leaving[slot] == id {
				continue
			}
			if l.masters[id] == "" {
				return nil, fmt.Errorf("slot %d moves to %s: %w", slot, id, errNoMaster)
			}
			if due[id] == nil {
				due[id] = &stay{}
			}
			due[id].slots[slot] = true
		}
	}
	return due, nil
}

// A stay records which slots a master had during a scan.
type stay struct {
	slots, // to see
	gone, // the master did not have them at some page
	left [protocol.SlotCount]bool // they were on their way from it at some page
	reply string // the last one, by ownSlots
}

// check records the CLUSTER NODES reply of the master at a page.
func (s *stay) check(nodes string) error {
	own, _ := ownSlots(nodes)
	if own != "" && own == s.reply {
		return nil
	}
	s.reply = own
	now, id := &layout{}, ""
	if fields := strings.Fields(own); len(fields) > 2 {
		id = fields[0]
		if err := now.addSlots(id, true, fields[2:]); err != nil {
			return fmt.Errorf("%w in %q", err, own)
		}
	}
	for slot, isDue := range s.slots {
		s.gone[slot] = s.gone[slot] || isDue && !slices.Contains(now.homes[slot], id)
		s.left[slot] = s.left[slot] || isDue && now.leaving[slot] != ""
	}
	return nil
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
