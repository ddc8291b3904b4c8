package store

import (
	"strconv"
	"strings"
)

// A span is a range of IDs without a gap, from first to last.
type span struct{ first, last uint64 }

// maxSpans is the maximum number of spans in one statement. With more, the IDs are so scattered
// that ranges gain nothing.
const maxSpans = 100

// spans returns the spans of IDs in ascending order, or nil if there are more than maxSpans.
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

// spanned returns a condition on id for the spans. A range that ends with the span would make the
// server read the row after it and wait for that row's lock, which another session may hold. Each
// range therefore ends one ID earlier, where the next row is the span's last one, and the last row
// is matched separately.
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
