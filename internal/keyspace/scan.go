package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
	"golang.org/x/sync/errgroup"
)

const (
	// scanBatch is how many matches are collected before they are unlinked, two UNLINKs' worth, and
	// scanDelay how long one may have to wait for that.
	scanBatch = 500
	scanDelay = 100 * time.Millisecond
	// memory is how many batches a scan keeps, to avoid counting a key again by its lease. It
	// exceeds the pages that can be between the scanning and the unlinking goroutine.
	memory = 3
	// scanPatience is how long an answer may take. A sweep holds nothing up, so it sits out a fork
	// or a slow command rather than begin again.
	scanPatience = 5 * time.Second
)

// A scan reads the names of one master.
type scan struct {
	sweep *sweep
	stay  *stay // in a Cluster: what it has to see
	pace  *pace
	watch stopwatch
	rtt   time.Duration
	nodes time.Duration // that Redis takes for CLUSTER NODES
	size  int64         // names that it expects to meet
	met   int64         // names that it has met

	found []unit
	taken [memory]map[string]bool // keys of this batch and of those before it
	since time.Time               // when the first of found was found
}

// scan reads the names of the master of options, over one connection: another one may lead to
// another server, where a cursor means nothing. One goroutine scans while another one matches and
// unlinks.
func (p *sweep) scan(ctx context.Context, options *redis.Options, stay *stay) error {
	s := &scan{sweep: p, stay: stay, pace: p.sweeper.budget.newPace()}
	s.taken[0] = map[string]bool{}
	client := s.client(options)
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	defer context.AfterFunc(ctx, s.watch.interrupt)()
	if err := s.measure(ctx, conn); err != nil {
		return p.sweeper.nodes.outage(ctx, err)
	}
	started := s.watch.reached()
	pages := make(chan []string, 1)
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pages)
		return s.scanPages(both, conn, pages)
	})
	group.Go(func() error { return s.unlinkMatches(both, pages) })
	err := group.Wait()
	p.expect(s.met - s.size) // what it expected and has not met, it will not
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return p.sweeper.nodes.outageOrLoss(ctx, err)
	}
	return s.checkServer(ctx, client, started)
}

// client returns a client like that of options, which times its answers.
func (s *scan) client(options *redis.Options) *redis.Client {
	o := *options
	o.PoolSize, o.PipelinePoolSize, o.MinIdleConns = 2, onePool, 0
	o.ReadTimeout = max(o.ReadTimeout, scanPatience)
	o.MaxRetries = -1 // no command twice, and none over another connection
	o.Dialer = s.watch.dialer(options.Dialer)
	return explainDenials(redis.NewClient(&o))
}

// measure measures the time on the wire, and asks how much there is to scan, which a user of least
// privilege may not know.
func (s *scan) measure(ctx context.Context, conn *redis.Conn) error {
	for i := range 3 {
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		if took := s.watch.last(); i == 0 || took < s.rtt {
			s.rtt = took
		}
		if s.stay == nil {
			continue
		}
		if err := conn.ClusterNodes(ctx).Err(); err != nil {
			return err
		}
		if took := max(s.watch.last()-s.rtt, 0); i == 0 || took < s.nodes {
			s.nodes = took
		}
	}
	size, err := conn.DBSize(ctx).Result()
	if err != nil && !redis.IsPermissionError(err) {
		return err
	}
	s.size = size
	s.sweep.expect(size)
	return nil
}

// scanPages scans from the first cursor to the last, slot by slot where that is possible.
func (s *scan) scanPages(ctx context.Context, conn *redis.Conn, pages chan<- []string) error {
	if slotScan := &s.sweep.sweeper.slotScan; s.stay != nil && s.stay.calm && slotScan.mayAsk() {
		if err := s.scanSlots(ctx, conn, pages); err != errNoSlotScan {
			return err
		}
		slotScan.deny()
	}
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		names, next, err := s.page(ctx, conn, cursor)
		if err != nil {
			return err
		}
		if err := s.deliver(ctx, names, pages); err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

// deliver passes the last page on, and leaves Redis alone.
func (s *scan) deliver(ctx context.Context, names []string, pages chan<- []string) error {
	s.pace.scanned(max(s.watch.last()-s.rtt-s.nodes, 0))
	s.pace.spent(s.nodes)
	select {
	case pages <- names:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.pace.rest(ctx)
}

// page reads a page. In a Cluster, it also checks the master's reply about its slots. The two small
// commands arrive in one packet, so Redis runs no command of another client between them.
func (s *scan) page(ctx context.Context, conn *redis.Conn, cursor uint64) (names []string, next uint64, err error) {
	if s.stay == nil {
		return conn.Scan(ctx, cursor, "", s.pace.bucketsDue()).Result()
	}
	pipe := conn.Pipeline()
	nodes, page := pipe.ClusterNodes(ctx), pipe.Scan(ctx, cursor, "", s.pace.bucketsDue())
	if _, err = pipe.Exec(ctx); err == nil {
		err = s.stay.recordSlots(nodes.Val())
	}
	names, next = page.Val()
	return names, next, err
}

// unlinkMatches unlinks what matches of the pages.
func (s *scan) unlinkMatches(ctx context.Context, pages <-chan []string) error {
	for names := range pages {
		s.met += int64(len(names))
		s.sweep.scanned(len(names))
		for _, name := range names {
			if u, ok := found(s.sweep.matcher, name); ok {
				s.hold(u)
			}
		}
		if len(s.found) >= scanBatch || len(s.found) > 0 && time.Since(s.since) >= scanDelay {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // and not the error of the interrupted command
	}
	return s.flush(ctx)
}

func (s *scan) hold(u unit) {
	for _, batch := range s.taken {
		if batch[u.key] {
			return
		}
	}
	if len(s.found) == 0 {
		s.since = time.Now()
	}
	s.taken[0][u.key] = true
	s.found = append(s.found, u)
}

func (s *scan) flush(ctx context.Context) error {
	if len(s.found) == 0 {
		return nil
	}
	var err error
	for patience := (&patience{limit: scanPatience}); ; { // unlinking again is harmless
		began := time.Now()
		err = s.sweep.unlink(ctx, s.found)
		s.pace.spent(max(time.Since(began)-s.rtt, 0))
		if err == nil || patience.wait(ctx, err) != nil {
			break
		}
	}
	s.found = s.found[:0]
	copy(s.taken[1:], s.taken[:])
	s.taken[0] = map[string]bool{}
	return err
}

// checkServer checks whether a new connection leads to the server that was scanned: a master that
// was replaced still answers SCAN.
func (s *scan) checkServer(ctx context.Context, client *redis.Client, started string) error {
	if !s.sweep.sweeper.failsOver {
		return nil
	}
	if err := client.Ping(ctx).Err(); err != nil {
		return s.sweep.sweeper.nodes.outage(ctx, err)
	}
	if now := s.watch.reached(); now != started {
		return &Outage{State: StateMasterDown, Err: fmt.Errorf("%s took over from %s", now, started)}
	}
	return nil
}

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
		if err := l.parseNodes(text, m.Options().Addr); err != nil {
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

// parseNodes records the CLUSTER NODES reply of the node at address, and the addresses of the
// others. One line is
//
//	<id> <ip:port@cport,hostname> <flags> <master> <ping> <pong> <epoch> <link> <slot> <slot> ...
//
// A slot is 7, 0-5460, [93->-<id>] on its way to another node or [77-<-<id>] from it; the last two
// are only in the line of the node itself.
func (l *layout) parseNodes(nodes, address string) error {
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
		first, last, rest, moves, err := parseSlots(f)
		if err != nil {
			return err
		}
		to, leaves := strings.CutPrefix(rest, ">-")
		for s := first; s <= last; s++ {
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

// parseSlots reads one field: a slot, a range of them, or a slot that moves, with what follows it.
func parseSlots(field string) (first, last int, rest string, moves bool, err error) {
	inner, moves := strings.CutPrefix(strings.TrimSuffix(field, "]"), "[")
	low, rest, isRange := strings.Cut(inner, "-")
	n, err := strconv.ParseUint(low, 10, 14)
	m := n
	if err == nil && isRange && !moves {
		m, err = strconv.ParseUint(rest, 10, 14)
	}
	return int(n), int(m), rest, moves, err
}

// unseen returns where the slots are that stays have not seen, or all slots without any stay.
func (l *layout) unseen(stays map[string]*stay) (map[string]*stay, error) {
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
			due[id].calm = due[id].calm || len(homes) == 1
		}
	}
	return due, nil
}

// A stay records which slots a master had during a scan.
type stay struct {
	slots, // to see
	gone, // the master did not have them at some page
	left [protocol.SlotCount]bool // they were on their way from it at some page
	reply string                    // the last one, by ownSlots
	calm  bool                      // some of the slots do not move
	has   *[protocol.SlotCount]bool // by the last reply: see ownedSlots
}

// recordSlots records the CLUSTER NODES reply of the master at a page.
func (s *stay) recordSlots(nodes string) error {
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
