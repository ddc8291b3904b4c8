package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

// shownNames is how many names a page shows of each settlement.
const shownNames = 10

// search serves the answer to a question, and the boxes for others.
func (c *Console) search(w http.ResponseWriter, r *http.Request) {
	m := c.cfg.runningMap()
	data := struct {
		Ask     *question
		Find    *history.Finding
		Explain *explanation
		Map     *invalidation.Map
		Again   string // the address of the answer, if that takes longer
	}{Map: m, Explain: explain(m, r.URL.Query())}
	if q := ask(r.URL.Query(), m); q != nil {
		if q.As == asLetter {
			http.Redirect(w, r, fmt.Sprintf("%s/dead?id=%d", c.cfg.Prefix, q.Row), http.StatusSeeOther)
			return
		}
		limit := firstWait
		if r.URL.Query().Has("wait") {
			limit = history.SearchLimit
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		data.Ask = q
		finder := history.Finder{DB: c.db, NoDB: errNoAccount, Redis: c.inRedis, Map: m, NoMap: "this process has no worker, and so no map", Acts: c.acts.onDead()}
		if data.Find = finder.Find(ctx, q.Question); ctx.Err() != nil && limit == firstWait {
			data.Find, data.Again = nil, "/search?"+r.URL.Query().Encode()+"&wait=1"
		}
		if data.Explain == nil && q.Entity != "" {
			data.Explain = explain(m, url.Values{"entity": {q.Entity}, "id": {q.ID}})
		}
	}
	c.write(w, r, http.StatusOK, "search", data)
}

// inRedis calls ask with the Redis of the console: a history.Redis.
func (c *Console) inRedis(ask func(*keyspace.Contents) error) error {
	if c.redis == nil {
		return errors.New("the console has no Redis account of an operator; set --console-redis-url")
	}
	return ask(c.redis.Contents)
}
