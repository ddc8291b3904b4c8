package cache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The limits of a readQueue. A read costs less in a pipeline of many than in one of few. So while
// many callers read, one pipeline is in flight at a time: 64 callers then make 3.7 times as many
// reads as with a GET each, but with two pipelines at a time 2.3 times. Few callers gain nothing by
// waiting for each other, and on a slow link, one pipeline would leave Redis idle.
const (
	mostFlights = 4                      // reads or pipelines in flight
	manyReads   = 8                      // above this average size, one pipeline is in flight
	longFlight  = 200 * time.Microsecond // after this time in flight, others may start
)

// sharedBytes is the size above which a value is read alone: others would wait for it.
const sharedBytes = 32 << 10

// A readQueue lets concurrent reads of one server share pipelines. They then also share system
// calls, TIME and the question where workers write. While few reads are in flight, a read is sent
// immediately, by its own goroutine. Others wait until one of these has ended, and are sent
// together. So a lone caller does not wait, and pipelines grow with the number of callers. Safe for
// concurrent use.
type readQueue struct {
	launch func(func()) bool

	mu      sync.Mutex
	flights int       // reads and pipelines in flight
	sent    time.Time // the latest one
	size    float64   // a moving average of their reads
	waiting []*sharedRead
}

// A sharedRead is one read that waits for its pipeline.
type sharedRead struct {
	ctx     context.Context
	request *request
	raw     raw
	stamps  map[string]string
	err     error
	done    chan struct{} // closed when the result is final
}

// readQueues has the queue of each server. The zero value lets no reads share anything.
type readQueues struct {
	single  *readQueue
	cluster *redis.ClusterClient
	nodes   sync.Map // of a Cluster: the queue by the address of the master
	launch  func(func()) bool
}

func newReadQueues(client redis.UniversalClient, launch func(func()) bool) *readQueues {
	q := &readQueues{launch: launch}
	switch client := client.(type) {
	case *redis.Client:
		q.single = &readQueue{launch: launch}
	case *redis.ClusterClient:
		q.cluster = client
	}
	return q
}

// read returns the value of a request, and the versions of at least the tags of its policy. The
// error means that Redis is unavailable or refuses to read the key, or comes from the caller's
// context.
func (q *readQueues) read(ctx context.Context, r *request) (raw, map[string]string, error) {
	if queue := q.of(ctx, r); queue != nil {
		return queue.read(ctx, r)
	}
	return r.readAlone(ctx)
}

// of returns the queue of the server that has the key of a request, and nil for a request that is
// sent alone. In a Cluster, a request with tags is: their versions are on other servers, and a
// failure of these must not affect other requests.
func (q *readQueues) of(ctx context.Context, r *request) *readQueue {
	switch {
	case q.single != nil:
		return q.single
	case q.cluster == nil, len(r.p.o.Tags) > 0, !r.c.redis.answered.Load():
		return nil // MasterForKey would wait for the slots without the limits of send
	}
	node, err := q.cluster.MasterForKey(ctx, r.name)
	if err != nil {
		return nil
	}
	address := node.Options().Addr
	queue, ok := q.nodes.Load(address)
	if !ok {
		queue, _ = q.nodes.LoadOrStore(address, &readQueue{launch: q.launch})
	}
	return queue.(*readQueue)
}

// read implements readQueues.read. A read that has waited for a timeout is sent alone. A log handler
// or a hook that reads would otherwise wait for the pipeline that has called it.
func (q *readQueue) read(ctx context.Context, r *request) (raw, map[string]string, error) {
	if r.c.redis.sizes.of(r.name) > sharedBytes {
		return r.readAlone(ctx)
	}
	q.mu.Lock()
	starts := q.mayStart()
	if starts && len(q.waiting) == 0 {
		q.start(1)
		q.mu.Unlock()
		defer q.ended() // even if the client panics
		return r.readAlone(ctx)
	}
	s := &sharedRead{ctx: ctx, request: r, err: errEnded, done: make(chan struct{})}
	q.waiting = append(q.waiting, s)
	var some sharedReads
	if starts {
		some = q.next()
	}
	q.mu.Unlock()
	q.send(some)
	patience := time.NewTimer(r.c.redis.timeout)
	defer patience.Stop()
	for done := false; !done; {
		select {
		case <-s.done:
			done = true
		case <-ctx.Done():
			return raw{}, nil, ctx.Err()
		case <-patience.C:
			if q.withdraw(s) {
				return r.readAlone(ctx)
			}
		}
	}
	if _, ok := s.err.(partial); ok {
		return r.readAlone(ctx) // the value of another request may have been too large
	}
	return s.raw, s.stamps, cmp.Or(s.err, s.raw.err)
}

// withdraw reports whether a read was still waiting, and takes it away.
func (q *readQueue) withdraw(s *sharedRead) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, s)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// mayStart reports whether another read or pipeline may be sent now. The caller holds mu.
func (q *readQueue) mayStart() bool {
	return q.flights == 0 || q.flights < mostFlights && (q.size <= manyReads || time.Since(q.sent) > longFlight)
}

// start records that so many reads are sent. The caller holds mu.
func (q *readQueue) start(reads int) {
	q.flights++
	q.sent = time.Now()
	q.size += (float64(reads) - q.size) / 4
}

// ended is called when a read or pipeline has ended. It sends those that wait.
func (q *readQueue) ended() {
	q.mu.Lock()
	q.flights--
	var some sharedReads
	if len(q.waiting) > 0 && q.mayStart() {
		some = q.next()
	}
	q.mu.Unlock()
	q.send(some)
}

// send sends reads, if there are any, in a new goroutine.
func (q *readQueue) send(some sharedReads) {
	if len(some) == 0 {
		return
	}
	send := func() {
		defer q.ended()
		growStack()
		some.send()
	}
	if !q.launch(send) { // after Close
		send()
	}
}

// next takes as many of the waiting reads as a pipeline has. The caller holds mu and sends them.
func (q *readQueue) next() (some sharedReads) {
	n := 0
	for bytes := 0; n < min(len(q.waiting), pipelineMost) && bytes < pipelineBytes; n++ {
		r := q.waiting[n].request
		bytes += r.c.redis.sizes.of(r.name)
	}
	some = slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.start(n)
	return some
}

// sharedReads are those of one pipeline.
type sharedReads []*sharedRead

// send sends the pipeline and completes the reads. They end with an error if the client panics or
// ends the goroutine.
func (some sharedReads) send() {
	defer func() {
		_ = recover() // the callers get errEnded, and load
		for _, s := range some {
			close(s.done)
		}
	}()
	wanted, rs := make(sharedReads, 0, len(some)), make(requests, 0, len(some))
	for _, s := range some {
		if s.err = s.ctx.Err(); s.err == nil {
			s.err = errEnded
			wanted, rs = append(wanted, s), append(rs, s.request)
		}
	}
	if len(rs) == 0 {
		return
	}
	// the caller of the first one may leave
	ctx := context.WithValue(context.WithoutCancel(wanted[0].ctx), callKey{}, nil)
	raws, stamps, err := rs.getValues(ctx)
	for i, s := range wanted {
		if s.err = err; err == nil {
			s.raw, s.stamps = raws[i], stamps
		}
	}
}
