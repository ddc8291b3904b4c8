package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
)

// patience bounds how long a statement is tried again that is refused a lock.
const patience = turnSeconds * time.Second

// Patiently runs a statement again while it is refused its lock (1205), for two minutes at most;
// what it is called in errors and in the notice that it waits comes from the error. Before each
// try, it returns an error if this process has lost the turn. The session's lock_wait_timeout
// should be short: what has queued behind a statement that waited is let through for as long as it
// waited, because while an ALTER waits for a transaction, inserts wait behind the ALTER. run gets a
// context that does not end: a statement in hand is finished. When ctx ends, one that was refused
// its lock is not tried again; the error wraps ctx's and the server's.
func (t *Turn) Patiently(ctx context.Context, called func(error) string, run func(context.Context) error) error {
	for first, waits := time.Now(), false; ; {
		begun := time.Now()
		if t.lease != nil {
			if err := t.lease.renew(); err != nil {
				return err
			}
		}
		err := run(context.WithoutCancel(ctx))
		if mysqlerr.Number(err) != mysqlerr.LockTimeout {
			return err
		}
		if time.Since(first) > patience {
			return fmt.Errorf("%s has waited for a lock for %s; see SHOW PROCESSLIST for who holds it, and run it again: %w", called(err), patience, err)
		}
		if !waits {
			waits = true
			t.say(called(err) + " waits for a lock on its table; a statement of a killed migration or a long transaction may hold it")
		}
		if ended := sleep.For(ctx, time.Since(begun)); ended != nil {
			return fmt.Errorf("%w, while %s waited for a lock: %w", ended, called(err), err)
		}
	}
}
