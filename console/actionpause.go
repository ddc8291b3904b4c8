package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// lookPause shows which workers would pause, and until when.
func (c *actor) lookPause(ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Button: "Pause all workers", args: in, Fields: []field{
		{Name: "for", Label: "For", Value: in.Get("for"), Hint: "30m"}, {Name: "reason", Label: "Reason", Value: in.Get("reason")},
	}}
	now, err := store.NewOrders(c.db).Paused(ctx)
	if err != nil {
		return nil, err
	}
	if it.seen = now; now != nil {
		it.Notes = append(it.Notes, "All workers pause already, "+now.String()+". The new pause replaces that one.")
	}
	lasts, err := past(in, "for")
	why := strings.TrimSpace(in.Get("reason"))
	switch {
	case err != nil:
		it.Block = err.Error()
	case len(why) > store.MaxReason:
		it.Block = fmt.Sprintf("the reason has %d bytes: must have at most %d", len(why), store.MaxReason)
	}
	if it.Block != "" || lasts == 0 {
		return it, nil
	}
	workers, err := store.NewWorkers(c.db).Workers(ctx)
	if err != nil {
		return nil, err
	}
	workers = slices.DeleteFunc(workers, func(w store.WorkerNote) bool { return !w.Lives() })
	it.Says = fmt.Sprintf("All workers (%s) stop claiming rows and sweeping within about a second, for %s. Rows wait, and their keys stay stale; nothing is lost.", output.Count(len(workers)), lasts)
	it.do = func(ctx context.Context, orders *store.Orders, _ string, _ func(string)) (string, error) {
		if err := orders.Pause(ctx, now, why, lasts); err != nil {
			return "", err
		}
		return "All workers pause for " + lasts.String() + ".", nil
	}
	return it, nil
}

// lookResume shows the pause that would end.
func (c *actor) lookResume(ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Button: "Resume all workers", args: in}
	now, err := store.NewOrders(c.db).Paused(ctx)
	if err != nil {
		return nil, err
	}
	if it.seen = now; now == nil {
		it.Block = "nothing is paused"
		return it, nil
	}
	it.Says = "All workers claim rows again. They are paused " + now.String() + "."
	it.do = func(ctx context.Context, orders *store.Orders, _ string, _ func(string)) (string, error) {
		if _, err := orders.Resume(ctx, now); err != nil {
			return "", err
		}
		return "All workers resume; they were paused " + now.String() + ".", nil
	}
	return it, nil
}
