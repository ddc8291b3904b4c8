package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// CLUSTERSCAN of Valkey 9.1 scans slot by slot: its cursor, such as "B3a21-{06S}-96", names the
// slot, and a master without that slot redirects. So a slot that moves is scanned by itself at its
// new master, and nothing else is scanned again.
//
// One call scans several slots of a master, up to the next one that it does not have. It does not
// stop at a slot that leaves key by key (CLUSTER SETSLOT MIGRATING), and then returns only the keys
// that have not left yet (findings/valkey-clusterscan-of-a-moving-slot.sh). So here too, each page
// comes with the master's reply about its slots.

// errNoSlotScan means that a server or an account has no CLUSTERSCAN.
var errNoSlotScan = errors.New("no CLUSTERSCAN")

// slotTags returns a hash tag of each slot.
var slotTags = sync.OnceValue(func() *[protocol.SlotCount]string {
	tags := &[protocol.SlotCount]string{}
	for i, left := 0, len(tags); left > 0; i++ {
		if tag := strconv.Itoa(i); tags[protocol.Slot(tag)] == "" {
			tags[protocol.Slot(tag)] = tag
			left--
		}
	}
	return tags
})

// slotCursor returns the cursor that begins a slot.
func slotCursor(slot int) string { return "0-{" + slotTags()[slot] + "}-0" }

// scanSlots scans the slots that are due. Those that the master does not have, or that leave it
// meanwhile, count as gone.
func (s *scan) scanSlots(ctx context.Context, conn *redis.Conn, pages chan<- []string) error {
	due := s.stay.slots
	slot := slices.Index(due[:], true)
	cursor, whole := slotCursor(slot), true // whole: the slot was the master's at each of its pages
	for slot < protocol.SlotCount {
		names, next, has, err := s.slotPage(ctx, conn, cursor)
		switch {
		case err == nil:
		case firstWord(err) == "NOPERM", firstWord(err) == "ERR" && strings.Contains(err.Error(), "unknown command"):
			return errNoSlotScan
		case stateOf(err) == StateMoving && has != nil:
			next, whole = cursor, false
			without := *has
			without[slot] = false
			has = &without
		default:
			return err
		}
		if err := s.deliver(ctx, names, pages); err != nil {
			return err
		}
		reached := protocol.SlotCount
		if next != "0" {
			reached = int(protocol.Slot(next))
		}
		if reached < slot {
			return fmt.Errorf("CLUSTERSCAN went from %s back to %s", cursor, next)
		}
		if whole = whole && has[slot]; slot < reached {
			due[slot] = due[slot] && !whole
			for slot++; slot < reached; slot++ {
				due[slot] = due[slot] && !has[slot]
			}
			whole = slot < protocol.SlotCount && has[slot]
		}
		cursor, reached = next, slot
		for slot < protocol.SlotCount && !(due[slot] && has[slot]) {
			slot++
		}
		if slot > reached && slot < protocol.SlotCount {
			cursor, whole = slotCursor(slot), true
		}
	}
	s.stay.gone = due
	return nil
}

// slotPage reads a page, and which slots the master has to itself. It returns these even if the
// master redirects.
func (s *scan) slotPage(ctx context.Context, conn *redis.Conn, cursor string) (names []string, next string, has *[protocol.SlotCount]bool, err error) {
	pipe := conn.Pipeline()
	nodes, page := pipe.ClusterNodes(ctx), redis.NewSliceCmd(ctx, "clusterscan", cursor, "count", s.pace.bucketsDue())
	_ = pipe.Process(ctx, page) // only queues
	_, _ = pipe.Exec(ctx)       // each command has its own error
	if err := nodes.Err(); err != nil {
		return nil, "", nil, err
	}
	if has, err = s.stay.ownedSlots(nodes.Val()); err != nil {
		return nil, "", nil, err
	}
	reply, err := page.Result()
	if err != nil {
		return nil, "", has, err
	}
	var list []any
	if len(reply) == 2 {
		next, _ = reply[0].(string)
		list, _ = reply[1].([]any)
	}
	if next == "" {
		return nil, "", nil, fmt.Errorf("CLUSTERSCAN answered %.100q", fmt.Sprint(reply))
	}
	names = make([]string, len(list))
	for i := range list {
		names[i], _ = list[i].(string)
	}
	return names, next, has, nil
}

// ownedSlots returns the slots that a master has to itself, by its own CLUSTER NODES reply: none
// that is moving.
func (s *stay) ownedSlots(nodes string) (*[protocol.SlotCount]bool, error) {
	own, _ := ownSlots(nodes)
	if own == s.reply && s.has != nil {
		return s.has, nil
	}
	s.reply, s.has = own, &[protocol.SlotCount]bool{}
	if fields := strings.Fields(own); len(fields) > 2 {
		for _, f := range fields[2:] {
			first, last, _, moves, err := parseSlots(f)
			if err != nil {
				return nil, fmt.Errorf("%w in %q", err, own)
			}
			for slot := first; slot <= last; slot++ {
				s.has[slot] = !moves // those that move come after the others
			}
		}
	}
	return s.has, nil
}
