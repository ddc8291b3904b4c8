package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/expand"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/invalidation"
)

// shownDead is how many dead letters an action shows.
const shownDead = 20

// An expandedLetter is a dead letter with its names by the running map.
type expandedLetter struct {
	operate.DeadLetter
	Label   string
	Names   []string // keys, patterns and sets
	Refused string   // why the map refuses it, or a lookup failed; "": it does not
}

// expand expands a row by the running map, with its lookups.
func (c *actor) expand(ctx context.Context, l operate.DeadLetter) expandedLetter {
	e := expandedLetter{DeadLetter: l}
	if c.cfg.Worker == nil {
		e.Refused = "unknown: this process has no worker, and so no map"
		return e
	}
	plan, _, err := expand.Texts(ctx, c.db, c.cfg.Worker.Map(), l.Entity, l.EntityID, l.Params)
	if err != nil {
		e.Refused = err.Error()
		if ask := c.cfg.nearEntity(l); ask != "" {
			e.Refused += "; " + ask
		}
		return e
	}
	e.Names = slices.Concat(plan.Keys, plan.Patterns, plan.Sets)
	slices.Sort(e.Names)
	return e
}

// A deadVerb is an action on many dead letters.
type deadVerb struct {
	says, button, done, note string
	run                      func(*operate.Orders, context.Context, operate.DeadQuery, func(total int)) ([]uint64, error)
}

var (
	retrying = deadVerb{
		"Puts back %s, due immediately: workers process them by the current map.", "Retry", "Retried %s.",
		"The map would refuse %s of those shown again. Correct them, or the map, first.", (*operate.Orders).RetryDead,
	}
	discarding = deadVerb{
		"Deletes %s for good. Their keys are not unlinked: they may stay stale until they expire.", "Discard", "Discarded %s.", "", (*operate.Orders).DiscardDead,
	}
)

// deadQuery reads the fields that choose dead letters. Empty input chooses none.
func deadQuery(in url.Values) (q operate.DeadQuery, chosen bool, err error) {
	for _, text := range strings.FieldsFunc(strings.Join(in["id"], " "), func(r rune) bool { return r == ' ' || r == ',' }) {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return q, false, fmt.Errorf("%q is not an ID; the panel of dead letters shows them", text)
		}
		q.IDs = append(q.IDs, id)
	}
	q.Entity, q.Reason, q.MapVersion = in.Get("entity"), in.Get("reason"), in.Get("map_version")
	if q.Reason != "" && !slices.Contains(invalidation.Reasons(), invalidation.Reason(q.Reason)) {
		return q, false, fmt.Errorf("there is no reason %q; the reasons are %v", q.Reason, invalidation.Reasons())
	}
	q.OlderThan, err = past(in, "older_than")
	if err == nil {
		q.NewerThan, err = past(in, "newer_than")
	}
	all := in.Get("all") != ""
	filtered := len(q.IDs) > 0 || q.Entity+q.Reason+q.MapVersion != "" || q.OlderThan > 0 || q.NewerThan > 0
	if err == nil && all && filtered {
		err = errors.New("all dead letters and a choice are given; give one of them")
	}
	if last := in.Get("last"); err == nil && last != "" {
		q.Last, err = strconv.ParseUint(last, 10, 64)
	}
	return q, all || filtered, err
}

// deadFields returns the fields that deadQuery reads.
func deadFields(in url.Values) []field {
	reasons := []string{""}
	for _, r := range invalidation.Reasons() {
		reasons = append(reasons, string(r))
	}
	return []field{
		{Name: "id", Label: "IDs", Value: strings.Join(in["id"], " "), Hint: "17 18"},
		{Name: "entity", Label: "Entity", Value: in.Get("entity")},
		{Name: "reason", Label: "Reason", Value: in.Get("reason"), Options: reasons},
		{Name: "map_version", Label: "Refused by map", Value: in.Get("map_version")},
		{Name: "older_than", Label: "Died before", Value: in.Get("older_than"), Hint: "24h"},
		{Name: "newer_than", Label: "Died within", Value: in.Get("newer_than"), Hint: "1h"},
		{Name: "all", Label: "All", Value: in.Get("all"), Check: true},
	}
}

// look shows the chosen letters. Letters that die later are not chosen.
func (v deadVerb) look(c *actor, ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Fields: deadFields(in), Button: v.button, args: in}
	q, chosen, err := deadQuery(in)
	if err != nil {
		it.Block = err.Error()
	}
	if err != nil || !chosen {
		return it, nil
	}
	orders := operate.NewOrders(c.db)
	if q.OlderThan > 0 || q.NewerThan > 0 {
		if q.At, err = c.moment(ctx, in); err != nil {
			return nil, err
		}
	}
	if q.OlderThan > 0 {
		it.Notes = append(it.Notes, "These died before "+absolute(q.At.Add(-q.OlderThan))+".")
	}
	if q.NewerThan > 0 {
		it.Notes = append(it.Notes, "These died since "+absolute(q.At.Add(-q.NewerThan))+".")
	}
	n, last, err := orders.CountDead(ctx, q)
	if err != nil {
		return nil, err
	}
	if q.Last == 0 {
		q.Last = last
		it.args.Set("last", strconv.FormatUint(last, 10))
	}
	letters, err := orders.DeadLetters(ctx, q, shownDead)
	if err != nil {
		return nil, err
	}
	it.Total, it.seen = n, []any{n, letters}
	refused := 0
	for _, l := range letters {
		e := c.expand(ctx, l)
		if it.Letters = append(it.Letters, e); e.Refused != "" {
			refused++
		}
	}
	switch {
	case n == 0:
		it.Block = "no dead letter matches; it may have been retried or discarded already"
	case len(q.IDs) > n:
		it.Notes = append(it.Notes, fmt.Sprintf("%s of these IDs: the others are gone, or do not match.", many(n, "dead letter")))
	}
	if refused > 0 && v.note != "" {
		it.Notes = append(it.Notes, fmt.Sprintf(v.note, count(refused)))
	}
	if n == 1 {
		it.Find = find("object", letters[0].Entity, letters[0].EntityID)
	}
	it.Says = fmt.Sprintf(v.says, many(n, "dead letter"))
	it.Button = v.button + " " + many(n, "dead letter")
	it.do = func(ctx context.Context, orders *operate.Orders, _ string, progress func(string)) (string, error) {
		done, err := v.run(orders, ctx, q, func(total int) { progress(many(total, "dead letter") + " of " + count(n)) })
		switch {
		case err == nil && len(done) == 0:
			return "", errChanged
		case err == nil && len(done) < n:
			return fmt.Sprintf(v.done, count(len(done))+" of "+many(n, "dead letter")+"; the others were retried or discarded meanwhile"), nil
		}
		return fmt.Sprintf(v.done, many(len(done), "dead letter")), err
	}
	return it, nil
}

// lookCorrect shows one letter with another entity or other parameters, before and after.
func (c *actor) lookCorrect(ctx context.Context, in url.Values) (*intent, error) {
	id := strings.TrimSpace(in.Get("id"))
	it := &intent{Fields: []field{{Name: "id", Label: "ID", Value: id}}, Button: "Retry as corrected", args: in}
	if id == "" {
		return it, nil
	}
	q, _, err := deadQuery(url.Values{"id": {id}})
	if err == nil && len(q.IDs) != 1 {
		err = errors.New("one ID is needed")
	}
	if err != nil {
		it.Block = err.Error()
		return it, nil
	}
	letters, err := operate.NewOrders(c.db).DeadLetters(ctx, q, 1)
	if err != nil {
		return nil, err
	}
	if it.seen = letters; len(letters) == 0 {
		it.Block = "there is no dead letter " + id + "; it may have been retried or discarded already"
		return it, nil
	}
	correction := operate.Correction{Letter: letters[0], Entity: letters[0].Entity, Params: letters[0].Params}
	params := ""
	if correction.Params != nil {
		params = *correction.Params
	}
	if in.Has("entity") && in.Has("params") {
		correction.Entity, params = in.Get("entity"), strings.ReplaceAll(in.Get("params"), "\r\n", "\n") // a browser's line ends
		if correction.Params = &params; params == "" {
			correction.Params = nil
		}
	}
	it.Fields = append(it.Fields, field{Name: "entity", Label: "Entity", Value: correction.Entity},
		field{Name: "params", Label: "Parameters, as JSON; empty: none", Value: params, Area: true})
	corrected := letters[0]
	corrected.Entity, corrected.Params = correction.Entity, correction.Params
	before, after := c.expand(ctx, letters[0]), c.expand(ctx, corrected)
	before.Label, after.Label = "before", "after"
	it.Letters, it.Total, it.Find = []expandedLetter{before, after}, 1, find("object", corrected.Entity, corrected.EntityID)
	switch {
	case !in.Has("entity"):
	case digest(corrected) == digest(letters[0]):
		it.Block = "nothing is corrected; change the entity or the parameters, or retry it as it is"
	case after.Refused != "":
		it.Block = "the running map refuses the row as corrected: " + after.Refused + "; correct the entity, the parameters, or the map"
	default:
		it.Says = "Puts back dead letter " + id + " with these values, due immediately."
	}
	it.do = func(ctx context.Context, orders *operate.Orders, _ string, _ func(string)) (string, error) {
		if err := orders.RetryCorrected(ctx, correction); err != nil {
			return "", err
		}
		return "Retried dead letter " + id + " as corrected.", nil
	}
	return it, nil
}
