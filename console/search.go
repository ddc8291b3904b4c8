package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/output"
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
	if q := parseQuestion(r.URL.Query(), m); q != nil {
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
	c.writePage(w, r, http.StatusOK, "search", data)
}

// inRedis calls ask with the Redis of the console: a history.Redis.
func (c *Console) inRedis(ask func(*keyspace.Contents) error) error {
	if c.redis == nil {
		return errors.New("the console has no Redis account of an operator; set --console-redis-url")
	}
	return ask(c.redis.Contents)
}

// An explanation lists the keys that a row would invalidate by the running map, without lookups.
type explanation struct {
	Entity, ID, Params string
	Err                string
	Plan               invalidation.Plan
	Missing            []string // names that workers look up; templates with them are left out
	Ignored            []string // parameters that the map does not declare
}

// longestParams is the most bytes of parameters.
const longestParams = 64 << 10

// explain expands the row of a URL, or returns nil if it has none.
func explain(m *invalidation.Map, values url.Values) *explanation {
	x := &explanation{Entity: values.Get("entity"), ID: values.Get("id"), Params: strings.TrimSpace(values.Get("params"))}
	if x.Entity == "" || m == nil || len(x.Params) > longestParams {
		return nil
	}
	row := invalidation.Row{Entity: x.Entity, ID: x.ID}
	if _, known := m.Describe(x.Entity); !known {
		x.Err = "the map has no entity " + output.Data(x.Entity) + "; " + near.DidYouMean(x.Entity, m.Entities(), "it has "+strings.Join(m.Entities(), ", "))
		return x
	}
	var err error
	if x.Params != "" {
		if row.Params, err = invalidation.ParseParams([]byte(x.Params)); err != nil {
			x.Err = err.Error()
			return x
		}
	}
	if x.Plan, err = m.Expand(row, nil); err != nil {
		needs, _ := m.Needs(row, nil)
		for _, n := range needs {
			x.Missing = append(x.Missing, n.Lookup.Param)
		}
		if len(x.Missing) > 0 {
			slices.Sort(x.Missing)
			x.Plan, err = m.ExpandWithoutLookups(row)
		}
	}
	if err != nil {
		x.Err = err.Error()
	}
	x.Ignored = m.Undeclared(row)
	return x
}

// Nothing reports whether the row reaches no key.
func (x *explanation) Nothing() bool {
	return len(x.Plan.Keys)+len(x.Plan.Patterns)+len(x.Plan.Sets) == 0
}

// The kinds of questions.
const (
	asKey    = "key"
	asObject = "object" // an entity and an ID
	asTrace  = "trace"
	asRow    = "row"    // the ID of a row in cache_outbox
	asLetter = "letter" // the ID of a dead letter
)

// numbered matches the ID of a row or of a dead letter, alone or as the page names it.
var numbered = regexp.MustCompile(`(?i)^(?:(row|dead letter) +)?([0-9]+)$`)

// A question is a search.
type question struct {
	Text string // as typed
	As   string // one of the kinds
	Auto bool   // the page has chosen the kind

	history.Question // Row may be a dead letter's ID
}

// longestQuestion is the most bytes of a search; a key of Redis may be longer.
const longestQuestion = 8 << 10

// parseQuestion reads a question of a URL, or returns nil if it has none. Without a kind, it
// chooses:
//   - the ID of a row for a number, and for a text such as "row 496"
//   - the ID of a dead letter for a text such as "dead letter 12"
//   - an entity and an ID if the text begins with an entity of the map and a space
//   - a key if the text has a colon, or the map reaches it
//   - a trace otherwise
func parseQuestion(values url.Values, m *invalidation.Map) *question {
	q := &question{Text: values.Get("q"), As: values.Get("as")}
	if q.Text == "" || len(q.Text) > longestQuestion {
		return nil
	}
	first, rest, two := strings.Cut(q.Text, " ")
	named, number := asRow, uint64(0) // 0: the text has no ID
	if parts := numbered.FindStringSubmatch(strings.TrimSpace(q.Text)); parts != nil {
		if id, err := strconv.ParseUint(parts[2], 10, 64); err == nil {
			number = id
		}
		if len(parts[1]) > len(asRow) {
			named = asLetter
		}
	}
	if !slices.Contains([]string{asKey, asObject, asTrace, asRow}, q.As) {
		q.Auto = true
		switch {
		case two && rest != "" && m != nil && slices.Contains(m.Entities(), first):
			q.As = asObject
		case number > 0:
			q.As = named
		case two && rest != "" && m == nil:
			q.As = asObject
		case strings.Contains(q.Text, ":") || m != nil && reaches(m, q.Text):
			q.As = asKey
		default:
			q.As = asTrace
		}
	}
	switch {
	case q.As == asLetter, q.As == asRow && named == asRow && number > 0:
		q.Row = number
	case q.As == asObject:
		q.Entity, q.ID = first, rest
	case q.As == asTrace:
		q.Trace = q.Text
	default:
		q.As, q.Key = asKey, q.Text
	}
	return q
}

func reaches(m *invalidation.Map, key string) bool {
	found, _ := m.Origins(key, 1)
	return len(found) > 0
}
