package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

const (
	listEvery    = 10 * time.Second // of lists that change rarely
	shownLetters = 3                // of each reason
	shownRows    = 10               // of other lists
)

// A deadReason is the newest dead letters of a reason.
type deadReason struct {
	Reason  string
	N       int
	Letters []shownLetter
}

// A shownLetter is a dead letter in the panel.
type shownLetter struct {
	store.DeadLetter
	Near string // a question about the name of an entity that the running map has, or ""
}

// A deadRow is the data of the template "deadrow".
type deadRow struct {
	shownLetter
	Base   string
	Acts   bool
	Listed bool // on a page of the list, which mixes reasons
}

// runningMap returns the map of the worker of this process, or nil.
func (c Config) runningMap() *invalidation.Map {
	if c.Worker == nil {
		return nil
	}
	return c.Worker.Map()
}

// nearEntity asks for the entity that a dead letter may mean, or returns "".
func (c Config) nearEntity(l store.DeadLetter) string {
	m := c.runningMap()
	if m == nil {
		return ""
	}
	if _, known := m.Describe(l.Entity); known {
		return ""
	}
	return near.DidYouMean(l.Entity, m.Entities(), "")
}

// readDead reads the newest dead letters of each reason.
func (c *Console) readDead(ctx context.Context) (any, error) {
	acts := store.NewActions(c.db)
	counts, err := acts.DeadReasons(ctx)
	if err != nil {
		return nil, err
	}
	list := []deadReason{}
	for reason, n := range counts {
		letters, err := acts.DeadLetters(ctx, store.DeadQuery{Reason: reason}, shownLetters)
		if err != nil {
			return nil, err
		}
		list = append(list, deadReason{reason, n, c.cfg.withNear(letters)})
	}
	slices.SortFunc(list, func(a, b deadReason) int { return b.N - a.N })
	return list, nil
}

// withNear adds to dead letters the entities that they may mean.
func (c Config) withNear(letters []store.DeadLetter) (list []shownLetter) {
	for _, l := range letters {
		list = append(list, shownLetter{l, c.nearEntity(l)})
	}
	return list
}

// shownOnPage is how many dead letters one page of their list has.
const shownOnPage = 50

// A deadList is the data of a page of all dead letters that match a filter, the newest first.
type deadList struct {
	Fields  []field
	Block   string // why the filter cannot be used
	Acts    bool
	Total   int
	Letters []shownLetter
	All     [2]string // the address of an action on all that match, for the template "deadlinks"
	Newest  string    // the address of the first page, or "" on it
	Older   string    // that of the next one, or ""
}

// serveDeadList serves a page of dead letters. It changes nothing.
func (c *Console) serveDeadList(w http.ResponseWriter, r *http.Request) {
	if c.db == nil {
		c.acts.fail(w, r, http.StatusServiceUnavailable, errNoAccount.Error())
		return
	}
	in := r.URL.Query()
	before, _ := strconv.ParseUint(in.Get("before"), 10, 64) // the last ID of the page before
	in.Del("before")
	q, filtered, err := deadQuery(in)
	list := deadList{Fields: deadFields(in)}
	if err != nil {
		list.Block = err.Error()
		c.writePage(w, r, http.StatusBadRequest, "deadlist", list)
		return
	}
	choice := in
	if !filtered {
		choice = url.Values{"all": {"1"}}
	}
	list.All = [2]string{c.cfg.Prefix + "/act/", "?" + choice.Encode()}
	ctx, cancel := context.WithTimeout(r.Context(), lookLimit)
	defer cancel()
	list.Acts = c.acts.whyNot(ctx, store.MayDead) == ""
	acts := store.NewActions(c.db)
	if list.Total, _, err = acts.CountDead(ctx, q); err == nil && before > 1 {
		q.Last, list.Newest = before-1, "/dead?"+in.Encode()
	}
	var letters []store.DeadLetter
	if err == nil {
		letters, err = acts.DeadLetters(ctx, q, shownOnPage+1)
	}
	if err != nil {
		c.acts.fail(w, r, http.StatusServiceUnavailable, reason(err))
		return
	}
	if len(letters) > shownOnPage {
		letters = letters[:shownOnPage]
		in.Set("before", strconv.FormatUint(letters[shownOnPage-1].ID, 10))
		list.Older = "/dead?" + in.Encode()
	}
	list.Letters = c.cfg.withNear(letters)
	c.writePage(w, r, http.StatusOK, "deadlist", list)
}
