package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

// The prices that an operator sets in a console, without triggers and with them.
const (
	forgottenPrice = 5990
	capturedPrice  = 3990
)

// priceCapture is the capture section of a map for the shop's prices.
var priceCapture = invalidation.Capture{Table: "products", Entity: "product", ID: "id", Watch: []string{"price_cents"}, Update: true}

// forgetRow changes a price as an operator does in a console, without an outbox row: first without
// triggers, then with the triggers of the map's capture section. The readers use package cache, and
// cannot detect the change either.
func (s readerScenes) forgetRow(ctx context.Context, on prices) error {
	ctx, cancel := context.WithTimeoutCause(ctx, raceLimit, fmt.Errorf("not finished within %s", raceLimit))
	defer cancel()
	err := s.p.demo.steps.run("changing a price without an outbox row: first without triggers, then with triggers", func() (string, error) {
		r, err := newLeaseReader(s.p.demo, on)
		if err != nil {
			return "", err
		}
		return "", errors.Join(s.forget(ctx, r, on), r.close())
	})
	if err != nil {
		return fmt.Errorf("a missing outbox row: %w", because(ctx, err))
	}
	f := s.p.report.Forgotten
	if o := f.Without; !o.isStale() {
		s.p.fault("a missing outbox row: without triggers, the next reader got %s for product %d and MySQL has %s, so the problem was not shown", money(o.NextCents), o.Product, money(o.MySQLCents))
	}
	if o := f.With; !o.isFresh() {
		s.p.fault("a missing outbox row: with triggers, the next reader got %s for product %d, but MySQL has %s", money(o.NextCents), o.Product, money(o.MySQLCents))
	}
	return nil
}

func (s readerScenes) forget(ctx context.Context, r reader, on prices) (err error) {
	if err := on.reset(ctx); err != nil {
		return err
	}
	f := &Forgotten{}
	if f.Without, err = s.inConsole(ctx, r, on, forgottenPrice); err != nil {
		return err
	}
	c := &capture.Capturer{DB: s.p.demo.store.Sessions.SchemaDB(), Captures: []invalidation.Capture{priceCapture}, Notify: func(string) {}}
	if err := c.Apply(ctx, func(capture.Change) {}); err != nil {
		return fmt.Errorf("make the trigger: %w", err)
	}
	if f.With, err = s.inConsole(ctx, r, on, capturedPrice); err != nil {
		return err
	}
	s.p.report.Forgotten = f
	return c.Drop(ctx, func(capture.Existing) bool { return true }, func(capture.Existing) {})
}

// inConsole changes a price that is cached in Redis. Another change with an outbox row follows.
// When that row is settled, the worker has skipped the first change.
func (s readerScenes) inConsole(ctx context.Context, r reader, on prices, cents int) (o Outcome, err error) {
	if _, err := r.price(ctx, firstPriced, noRest); err != nil {
		return o, err
	}
	if _, err := on.db.ExecContext(ctx, changePriceSQL, cents, firstPriced); err != nil {
		return o, fmt.Errorf("change price of product %d: %w", firstPriced, err)
	}
	if err := on.change(ctx, lastPriced, cents); err != nil {
		return o, err
	}
	if err := s.awaitSettled(ctx); err != nil {
		return o, err
	}
	return s.outcome(ctx, r, on, firstPriced)
}
