package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// shownDead is how many dead letters an action shows.
const shownDead = 20

// An expandedLetter is a dead letter with its names by the running map.
type expandedLetter struct {
	store.DeadLetter
	Label   string
	Names   []string // keys, patterns and sets
	Refused string   // why the map refuses it, or a lookup failed; "": it does not
}

// expand expands a row by the running map, with its lookups.
func (c *actor) expand(ctx context.Context, l store.DeadLetter) expandedLetter {
	e := expandedLetter{DeadLetter: l}
	if c.cfg.Worker == nil {
		e.Refused = "unknown: this process has no worker, and so no map"
		return e
	}
	plan, _, err := history.ExpandTexts(ctx, c.db, c.cfg.Worker.Map(), l.Entity, l.EntityID, l.Params)
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
	run                      func(*store.Actions, context.Context, store.DeadQuery, func(total int)) ([]uint64, error) // nil: correct
}

var (
	retrying = deadVerb{
		says: "Puts back %s, due immediately: workers process them by the current map.", button: "Retry", done: "Retried %s.",
		note: "The map would refuse %s of those shown again. Correct them, or the map, first.", run: (*store.Actions).RetryDead,
	}
	discarding = deadVerb{
		says: "Deletes %s for good. Their keys are not unlinked: they may stay stale until they expire.", button: "Discard", done: "Discarded %s.", run: (*store.Actions).DiscardDead,
	}
	correcting = deadVerb{
		says: "Puts back %s", button: "Correct", done: "Retried %s as corrected.",
		note: "The map refuses %s of those shown as corrected. They stay as they are.",
	}
)

// deadQuery reads the fields that choose dead letters. Empty input chooses none.
func deadQuery(in url.Values) (q store.DeadQuery, chosen bool, err error) {
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

// deadFields returns the fields of a filter, which deadQuery reads.
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
	}
}

// A correction has the new values of dead letters. Empty ones leave a letter as it is.
type correction struct{ Entity, Params string }

// of returns a letter with the new values.
func (n correction) of(l store.DeadLetter) store.DeadLetter {
	l.Entity = cmp.Or(n.Entity, l.Entity)
	if n.Params != "" {
		l.Params = &n.Params
	}
	return l
}

// says describes the new values.
func (n correction) says() string {
	var with []string
	if n.Entity != "" {
		with = append(with, "entity "+output.Data(n.Entity))
	}
	if n.Params != "" {
		with = append(with, "parameters "+output.Data(n.Params))
	}
	if with == nil {
		return ""
	}
	return " with " + strings.Join(with, " and ") + ", due immediately."
}

// newCorrection reads the new values. The form of one letter shows those that it has.
func newCorrection(in url.Values, letters []store.DeadLetter) (to correction, fields []field) {
	to = correction{in.Get("set_entity"), strings.ReplaceAll(in.Get("set_params"), "\r\n", "\n")} // a browser's line ends
	shown := to
	if len(letters) == 1 {
		now := to.of(letters[0])
		if shown.Entity = now.Entity; now.Params != nil {
			shown.Params = *now.Params
		}
	}
	return to, []field{
		{Name: "set_entity", Label: "New entity", Value: shown.Entity},
		{Name: "set_params", Label: "New parameters, as JSON; empty: unchanged", Value: shown.Params, Area: true},
	}
}

// correct retries the chosen letters with new values, one by one. The running map must accept each.
func (c *actor) correct(ctx context.Context, acts *store.Actions, q store.DeadQuery, to correction, did func(total int)) (done []uint64, err error) {
	refused, why := 0, ""
	for q.Last > 0 {
		letters, err := acts.DeadLetters(ctx, q, shownDead)
		if err != nil || len(letters) == 0 {
			return done, cmp.Or(err, refusal(refused, why))
		}
		for _, l := range letters {
			q.Last = l.ID - 1 // the newest come first
			now := to.of(l)
			e := c.expand(ctx, now)
			if ctx.Err() != nil {
				return done, ctx.Err()
			}
			if e.Refused != "" {
				refused, why = refused+1, cmp.Or(why, e.Refused)
				continue
			}
			err := acts.RetryCorrected(ctx, store.Correction{Letter: l, Entity: now.Entity, Params: now.Params})
			if err == nil {
				done = append(done, l.ID)
			} else if !errors.Is(err, store.ErrLetterChanged) {
				return done, err
			}
		}
		did(len(done))
	}
	return done, refusal(refused, why)
}

// refusal returns an error about letters that the map refuses as corrected, or nil.
func refusal(n int, why string) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the running map refuses %s as corrected, the first: %s", many(n, "dead letter"), why)
}

// preview shows the chosen letters. Letters that die later are not chosen.
func (v deadVerb) preview(c *actor, ctx context.Context, in url.Values) (*intent, error) {
	it := &intent{Fields: append(deadFields(in), field{Name: "all", Label: "All", Value: in.Get("all"), Check: true}), Button: v.button, args: in}
	q, chosen, err := deadQuery(in)
	if err != nil {
		it.Block = err.Error()
	}
	if err != nil || !chosen {
		return it, nil
	}
	acts := store.NewActions(c.db)
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
	n, last, err := acts.CountDead(ctx, q)
	if err != nil {
		return nil, err
	}
	if q.Last == 0 {
		q.Last = last
		it.args.Set("last", strconv.FormatUint(last, 10))
	}
	letters, err := acts.DeadLetters(ctx, q, shownDead)
	if err != nil {
		return nil, err
	}
	it.Total, it.Shown, it.seen = n, len(letters), []any{n, letters}
	to, run, corrects := correction{}, v.run, v.run == nil
	if corrects {
		var fields []field
		to, fields = newCorrection(in, letters)
		it.Fields = append(it.Fields, fields...)
		run = func(acts *store.Actions, ctx context.Context, q store.DeadQuery, did func(int)) ([]uint64, error) {
			return c.correct(ctx, acts, q, to, did)
		}
	}
	refused, changed, why := 0, 0, ""
	for _, l := range letters {
		e := c.expand(ctx, l)
		if now := to.of(l); to != (correction{}) {
			after := c.expand(ctx, now)
			e.Label, after.Label = "before", "after"
			it.Letters = append(it.Letters, e)
			if e = after; digest(now) != digest(l) {
				changed++
			}
		}
		if it.Letters = append(it.Letters, e); e.Refused != "" {
			refused, why = refused+1, cmp.Or(why, e.Refused)
		}
	}
	switch {
	case n == 0:
		it.Block = "no dead letter matches; it may have been retried or discarded already"
	case corrects && to == (correction{}):
		return it, nil // the new values are missing
	case corrects && changed == 0 && n == len(letters):
		it.Block = "nothing is corrected; change the entity or the parameters, or retry it as it is"
	case corrects && refused == n:
		it.Block = "the running map refuses the row as corrected: " + why + "; correct the entity, the parameters, or the map"
	case len(q.IDs) > n:
		it.Notes = append(it.Notes, fmt.Sprintf("%s of these IDs: the others are gone, or do not match.", many(n, "dead letter")))
	}
	if refused > 0 && v.note != "" && it.Block == "" {
		it.Notes = append(it.Notes, fmt.Sprintf(v.note, output.Count(refused)))
	}
	if n == 1 && len(letters) == 1 {
		it.Find = find("object", to.of(letters[0]).Entity, letters[0].EntityID)
	}
	it.Says = fmt.Sprintf(v.says, many(n, "dead letter")) + to.says()
	it.Button = v.button + " " + many(n, "dead letter")
	it.do = func(ctx context.Context, acts *store.Actions, _ string, progress func(string)) (string, error) {
		done, err := run(acts, ctx, q, func(total int) { progress(many(total, "dead letter") + " of " + output.Count(n)) })
		switch {
		case err == nil && len(done) == 0:
			return "", errChanged
		case err == nil && len(done) < n:
			return fmt.Sprintf(v.done, output.Count(len(done))+" of "+many(n, "dead letter")+"; the others were retried or discarded meanwhile"), nil
		}
		return fmt.Sprintf(v.done, many(len(done), "dead letter")), err
	}
	return it, nil
}
