package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

// The prices that somebody sets in a console, without triggers and with them.
const (
	forgottenPrice = 5990
	capturedPrice  = 3990
)

// priceCapture is what a map would say of the shop's prices.
var priceCapture = invalidation.Capture{Table: "products", Entity: "product", ID: "id", Watch: []string{"price_cents"}, Update: true}

// forgetRow changes a price as somebody does in a console, who knows nothing of an outbox: without triggers, and then with
// those of the map's section capture. The readers are those of package cache, which cannot know of the change either.
func (p *player) forgetRow(ctx context.Context, on prices) error {
	ctx, cancel := context.WithTimeoutCause(ctx, raceLimit, fmt.Errorf("not through within %s", raceLimit))
	defer cancel()
	err := p.steps.run("changing a price in a console, without a row in the outbox, then the same with triggers", func() (string, error) {
		r, err := newLeaseReader(p.Demo, on)
		if err != nil {
			return "", err
		}
		return "", errors.Join(p.forget(ctx, r, on), r.close())
	})
	if err != nil {
		return fmt.Errorf("a forgotten row: %w", because(ctx, err))
	}
	f := p.report.Forgotten
	if o := f.Without; !o.isStale() {
		p.fault("a forgotten row: without triggers the next reader got %s for product %d, and MySQL says %s, so that nothing is shown", money(o.NextCents), o.Product, money(o.MySQLCents))
	}
	if o := f.With; !o.isFresh() {
		p.fault("a forgotten row: with triggers the next reader got %s for product %d, and MySQL says %s", money(o.NextCents), o.Product, money(o.MySQLCents))
	}
	return nil
}

func (p *player) forget(ctx context.Context, r reader, on prices) (err error) {
	if err := on.reset(ctx); err != nil {
		return err
	}
	f := &Forgotten{}
	if f.Without, err = p.inConsole(ctx, r, on, forgottenPrice); err != nil {
		return err
	}
	c := &capture.Capturer{DB: p.store.SchemaDB(), Captures: []invalidation.Capture{priceCapture}, Notify: func(string) {}}
	if err := c.Apply(ctx, func(capture.Change) {}); err != nil {
		return fmt.Errorf("make the trigger: %w", err)
	}
	if f.With, err = p.inConsole(ctx, r, on, capturedPrice); err != nil {
		return err
	}
	p.report.Forgotten = f
	return c.Drop(ctx, func(capture.Existing) bool { return true }, func(capture.Existing) {})
}

// inConsole changes a price that is in Redis. Another change, whose row is not forgotten, comes after it: when that is
// settled, the worker has passed the first one by.
func (p *player) inConsole(ctx context.Context, r reader, on prices, cents int) (o Outcome, err error) {
	if _, err := r.price(ctx, firstPriced, noRest); err != nil {
		return o, err
	}
	if _, err := on.db.ExecContext(ctx, changePriceSQL, cents, firstPriced); err != nil {
		return o, fmt.Errorf("change price of product %d: %w", firstPriced, err)
	}
	if err := on.change(ctx, lastPriced, cents); err != nil {
		return o, err
	}
	if err := p.awaitSettled(ctx); err != nil {
		return o, err
	}
	return p.outcome(ctx, r, on, firstPriced)
}
