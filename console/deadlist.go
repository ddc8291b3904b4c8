package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/unstale/unstale/internal/store"
)

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
		c.write(w, r, http.StatusBadRequest, "deadlist", list)
		return
	}
	choice := in
	if !filtered {
		choice = url.Values{"all": {"1"}}
	}
	list.All = [2]string{c.cfg.Prefix + "/act/", "?" + choice.Encode()}
	ctx, cancel := context.WithTimeout(r.Context(), lookLimit)
	defer cancel()
	list.Acts = c.acts.missing(ctx, store.MayDead) == ""
	orders := store.NewOrders(c.db)
	if list.Total, _, err = orders.CountDead(ctx, q); err == nil && before > 1 {
		q.Last, list.Newest = before-1, "/dead?"+in.Encode()
	}
	var letters []store.DeadLetter
	if err == nil {
		letters, err = orders.DeadLetters(ctx, q, shownOnPage+1)
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
	for _, l := range letters {
		list.Letters = append(list.Letters, shownLetter{l, c.cfg.nearEntity(l)})
	}
	c.write(w, r, http.StatusOK, "deadlist", list)
}
