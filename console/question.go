package console

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/invalidation"
)

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

// ask reads a question of a URL, or returns nil if it has none. Without a kind, it chooses:
//   - the ID of a row for a number, and for a text such as "row 496"
//   - the ID of a dead letter for a text such as "dead letter 12"
//   - an entity and an ID if the text begins with an entity of the map and a space
//   - a key if the text has a colon, or the map reaches it
//   - a trace otherwise
func ask(values url.Values, m *invalidation.Map) *question {
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
