package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// errUnreachable is wrapped by the error of a mint whose MySQL does not answer.
var errUnreachable = errors.New("MySQL does not answer")

// A reach records whether this process reaches MySQL. A process that does not reach MySQL must not
// take locks from those that do.
type reach struct {
	db   *sql.DB         // of one session, for pings
	down atomic.Bool     // the last mint got no answer, and no ping since
	life context.Context // ends with close
	end  context.CancelFunc
	work sync.WaitGroup // the ping

	mu    sync.Mutex
	now   *ping                             // nil while none is under way
	mints map[*context.CancelCauseFunc]bool // under way
}

// A ping asks MySQL for an answer. Callers that ask meanwhile share the outcome.
type ping struct {
	over chan struct{}
	err  error // set before over is closed
}

// openReach sends nothing.
func openReach(config Config) (*reach, error) {
	db, err := openMint(config, mintQuick)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	r := &reach{db: db, mints: map[*context.CancelCauseFunc]bool{}}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

func (r *reach) close() error {
	r.mu.Lock()
	r.end() // no ping begins after this
	r.mu.Unlock()
	r.work.Wait()
	return r.db.Close()
}

// answered records the outcome of a mint. Any answer of the server is a proof.
func (r *reach) answered(err error) {
	r.down.Store(err != nil && mysqlerr.Number(err) == 0 && !errors.Is(err, ErrGuardOpen) && !errors.Is(err, errWriters))
}

// ready returns nil unless the last mint failed and MySQL still does not answer.
func (r *reach) ready(ctx context.Context) error {
	if !r.down.Load() {
		return nil
	}
	return r.ping(ctx)
}

// ping waits for the outcome of the ping that is under way, or of a new one.
func (r *reach) ping(ctx context.Context) error {
	r.mu.Lock()
	if r.life.Err() != nil {
		r.mu.Unlock()
		return ErrClosed
	}
	p := r.now
	if p == nil {
		p = &ping{over: make(chan struct{})}
		r.now = p
		r.work.Go(func() { r.awaitPing(p) })
	}
	r.mu.Unlock()
	select {
	case <-p.over:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitPing waits for an answer for mintGrace. Without one it cancels all mints: none of them gets
// an answer.
func (r *reach) awaitPing(p *ping) {
	ctx, cancel := context.WithTimeout(r.life, mintGrace)
	defer cancel()
	err := r.db.PingContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(p.over)
	r.now = nil
	if err == nil || mysqlerr.Number(err) != 0 {
		r.down.Store(false)
		return
	}
	p.err = fmt.Errorf("%w: %w", errUnreachable, err)
	for cancel := range r.mints {
		(*cancel)(p.err)
	}
}

// watch pings MySQL each second while a mint runs, and immediately if its caller gives up. A ping
// without an answer cancels the mint. The caller runs stop when the mint has ended.
func (r *reach) watch(ctx, caller context.Context, cancel context.CancelCauseFunc) (stop func()) {
	r.mu.Lock()
	r.mints[&cancel] = true
	r.mu.Unlock()
	over := make(chan struct{})
	go func() {
		ended := caller.Done()
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-ended:
				ended = nil
			case <-time.After(mintQuick):
			}
			_ = r.ping(ctx) // which cancels the mint
		}
	}()
	return func() {
		close(over)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.mints, &cancel)
	}
}
