package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// locks are the locks of one Locker that a section relies on, in the order of their names.
type locks []*Held

func (all locks) names() (list []string) {
	for _, h := range all {
		list = append(list, h.claim.Name)
	}
	return list
}

// String returns the names for errors.
func (all locks) String() string {
	quoted := all.names()
	for i, name := range quoted {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// during returns a context that ends with ctx and with any of the locks.
func (all locks) during(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(all))
	for i, h := range all {
		stops[i] = context.AfterFunc(h.ctx, func() { cancel(h.cause()) })
	}
	return both, func(why error) {
		for _, stop := range stops {
			stop()
		}
		cancel(why)
	}
}

// check returns the reason not to rely on the locks any longer: see Held.check.
func (all locks) check() error {
	for _, h := range all {
		if err := h.check(); err != nil {
			return err
		}
	}
	return nil
}

// ready returns the errors of a section that are known without asking a server.
func (all locks) ready() error {
	for _, h := range all {
		if err := h.ready(); err != nil {
			return err
		}
	}
	return nil
}

// lost returns why one of them is lost, or nil.
func (all locks) lost() error {
	for _, h := range all {
		if why := h.cause(); errors.Is(why, ErrLost) {
			return why
		}
	}
	return nil
}

// leave stops extending them.
func (all locks) leave() {
	for _, h := range all {
		h.leave()
	}
}

// release gives them back, the last one first.
func (all locks) release() error { return errors.Join(all.releaseEach()...) }

func (all locks) releaseEach() (errs []error) {
	for i := range all {
		errs = append(errs, all[len(all)-1-i].Release())
	}
	return errs
}

// finish releases them after a section. A release that is not confirmed is not a failure of the
// section: no other holder had the lock before its end. The Logger is told.
func (all locks) finish() error {
	errs := all.releaseEach()
	for i, err := range errs {
		if unconfirmed := (*unconfirmedError)(nil); errors.As(err, &unconfirmed) {
			errs[i] = nil
			config := all[0].locker.config
			config.Logger.Warn("a lock was not released; others wait until its lease ends", "lock", unconfirmed.name, "ttl", config.TTL, "error", unconfirmed.why)
		}
	}
	return errors.Join(errs...)
}
