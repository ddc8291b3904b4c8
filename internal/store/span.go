package store

import (
	"strconv"
	"strings"
)

// A span is ids without a gap, from the first to the last.
type span struct{ first, last uint64 }

// maxSpans is how many spans one statement names. More of them are so scattered that a range each gains nothing.
const maxSpans = 100

// spans of ids in ascending order, or nil if there are more than maxSpans.
func spans(ids []uint64) []span { return spansUpTo(ids, maxSpans) }

func spansUpTo(ids []uint64, most int) []span {
	var list []span
	for _, id := range ids {
		if n := len(list); n > 0 && list[n-1].last+1 == id {
			list[n-1].last = id
			continue
		}
		if len(list) == most {
			return nil
		}
		list = append(list, span{id, id})
	}
	return list
}

// spanned is a condition on id for the spans. A range that ended with the span would make the server look at the row
// after it, which may be somebody else's, and wait for it. So each range ends one before, where the next row is the
// span's last, and that is looked up by itself.
func spanned(list []span) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteString(" OR ")
		}
		if s.first < s.last {
			b.WriteString("id BETWEEN " + strconv.FormatUint(s.first, 10) + " AND " + strconv.FormatUint(s.last-1, 10) + " OR ")
		}
		b.WriteString("id = " + strconv.FormatUint(s.last, 10))
	}
	return b.String()
}
