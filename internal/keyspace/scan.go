package keyspace

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
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
	if err := s.begin(ctx, conn); err != nil {
		return p.sweeper.nodes.outage(ctx, err)
	}
	started := s.watch.reached()
	pages := make(chan []string, 1)
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pages)
		return s.read(both, conn, pages)
	})
	group.Go(func() error { return s.take(both, pages) })
	err := group.Wait()
	p.expect(s.met - s.size) // what it expected and has not met, it will not
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return p.sweeper.nodes.outageOrLoss(ctx, err)
	}
	return s.end(ctx, client, started)
}

// client returns a client like that of options, which times its answers.
func (s *scan) client(options *redis.Options) *redis.Client {
	o := *options
	o.PoolSize, o.PipelinePoolSize, o.MinIdleConns = 2, onePool, 0
	o.ReadTimeout = max(o.ReadTimeout, scanPatience)
	o.MaxRetries = -1 // no command twice, and none over another connection
	o.Dialer = s.watch.dialer(options.Dialer)
	c := redis.NewClient(&o)
	c.AddHook(denials{})
	return c
}

// begin measures the time on the wire, and asks how much there is to scan, which a user of least
// privilege may not know.
func (s *scan) begin(ctx context.Context, conn *redis.Conn) error {
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

// read scans from the first cursor to the last.
func (s *scan) read(ctx context.Context, conn *redis.Conn, pages chan<- []string) error {
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		names, next, err := s.page(ctx, conn, cursor)
		if err != nil {
			return err
		}
		s.pace.scanned(max(s.watch.last()-s.rtt-s.nodes, 0))
		s.pace.spent(s.nodes)
		select {
		case pages <- names:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.pace.rest(ctx); err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

// page reads a page. In a Cluster, it also checks the master's reply about its slots. The two small
// commands arrive in one packet, so Redis runs no command of another client between them.
func (s *scan) page(ctx context.Context, conn *redis.Conn, cursor uint64) (names []string, next uint64, err error) {
	if s.stay == nil {
		return conn.Scan(ctx, cursor, "", s.pace.count()).Result()
	}
	pipe := conn.Pipeline()
	nodes, page := pipe.ClusterNodes(ctx), pipe.Scan(ctx, cursor, "", s.pace.count())
	if _, err = pipe.Exec(ctx); err == nil {
		err = s.stay.check(nodes.Val())
	}
	names, next = page.Val()
	return names, next, err
}

// take unlinks what matches of the pages.
func (s *scan) take(ctx context.Context, pages <-chan []string) error {
	for names := range pages {
		s.met += int64(len(names))
		s.sweep.scanned(len(names))
		for _, name := range names {
			if u, ok := found(s.sweep.matcher, name); ok {
				s.add(u)
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

func (s *scan) add(u unit) {
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

// end checks whether a new connection leads to the server that was scanned: a master that was
// replaced still answers SCAN.
func (s *scan) end(ctx context.Context, client *redis.Client, started string) error {
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
