package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// locks are those of one Locker on which a section relies, in the order of their names.
type locks []*Held

func (all locks) names() (list []string) {
	for _, h := range all {
		list = append(list, h.claim.name)
	}
	return list
}

// String is for errors.
func (all locks) String() string {
	quoted := all.names()
	for i, name := range quoted {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// during is a context that ends with ctx and with any of the locks.
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

// check returns why the locks must not be relied on any more: see Held.check.
func (all locks) check() error {
	for _, h := range all {
		if err := h.check(); err != nil {
			return err
		}
	}
	return nil
}

// ready refuses a section by what is known without asking anybody.
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
func (all locks) release() error {
	var errs []error
	for i := range all {
		errs = append(errs, all[len(all)-1-i].Release())
	}
	return errors.Join(errs...)
}
