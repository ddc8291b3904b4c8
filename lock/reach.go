package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// errUnreachable is wrapped by the error of a mint whose MySQL does not answer.
var errUnreachable = errors.New("MySQL does not answer")

// A reach records whether this process reaches MySQL. A process that does not reach MySQL must not take
// locks from those that do.
type reach struct {
	db      *sql.DB       // of one session, for pings
	pinging chan struct{} // has room for one
	down    *atomic.Bool  // the last mint got no answer, and no ping since
}

// openReach sends nothing.
func openReach(config Config) (reach, error) {
	db, err := openMint(config, mintQuick)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return reach{db, make(chan struct{}, 1), new(atomic.Bool)}, err
}

func (r reach) close() error { return r.db.Close() }

// answered records the outcome of a mint. Any answer of the server is a proof.
func (r reach) answered(err error) {
	r.down.Store(err != nil && mysqlerr.Number(err) == 0 && !errors.Is(err, ErrGuardOpen) && !errors.Is(err, errWriters))
}

// ready returns nil unless the last mint failed and MySQL still does not answer.
func (r reach) ready(ctx context.Context) error {
	if !r.down.Load() {
		return nil
	}
	return r.ping(ctx)
}

// ping asks MySQL for an answer, and waits for mintGrace.
func (r reach) ping(ctx context.Context) error {
	select {
	case r.pinging <- struct{}{}:
		defer func() { <-r.pinging }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, mintGrace)
	defer cancel()
	if err := r.db.PingContext(limited); err != nil && mysqlerr.Number(err) == 0 {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	r.down.Store(false)
	return nil
}

// watch pings MySQL each second while a mint runs, and immediately if its caller gives up. It cancels the
// mint if the ping gets no answer. The caller runs stop when the mint has ended.
func (r reach) watch(ctx, caller context.Context, cancel context.CancelCauseFunc) (stop func()) {
	over := make(chan struct{})
	go func() {
		ended := caller.Done()
		timer := time.NewTimer(mintQuick)
		defer timer.Stop()
		for {
			select {
			case <-over:
				return
			case <-ended:
				ended = nil
			case <-timer.C:
			}
			if err := r.ping(ctx); err != nil {
				cancel(err)
				return
			}
			timer.Reset(mintQuick)
		}
	}()
	return func() { close(over) }
}
