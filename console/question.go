package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// The kinds of questions.
const (
	asKey    = "key"
	asObject = "object" // an entity and an ID
	asTrace  = "trace"
	asRow    = "row" // the ID of a row in cache_outbox
)

// A question is a search.
type question struct {
	Text string // as typed
	As   string // one of the kinds
	Auto bool   // the page has chosen the kind

	Key, Entity, ID, Trace string
	Row                    uint64
}

// longestQuestion is the most bytes of a search; a key of Redis may be longer.
const longestQuestion = 8 << 10

// ask reads a question of a URL, or returns nil if it has none. Without a kind, it chooses:
//   - the ID of a row for a number
//   - an entity and an ID if the text begins with an entity of the map and a space
//   - a key if the text has a colon, or the map reaches it
//   - a trace otherwise
func ask(values url.Values, m *invalidation.Map) *question {
	q := &question{Text: values.Get("q"), As: values.Get("as")}
	if q.Text == "" || len(q.Text) > longestQuestion {
		return nil
	}
	first, rest, two := strings.Cut(q.Text, " ")
	number, err := strconv.ParseUint(q.Text, 10, 64)
	if !slices.Contains([]string{asKey, asObject, asTrace, asRow}, q.As) {
		q.Auto = true
		switch {
		case err == nil && number > 0:
			q.As = asRow
		case two && rest != "" && (m == nil || slices.Contains(m.Entities(), first)):
			q.As = asObject
		case strings.Contains(q.Text, ":") || m != nil && reaches(m, q.Text):
			q.As = asKey
		default:
			q.As = asTrace
		}
	}
	switch {
	case q.As == asRow && err == nil && number > 0:
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
