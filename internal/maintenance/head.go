package maintenance

import (
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
)

// least and most are times that no clock of a server shows, in microseconds: 2001 and 5138. They
// tell entries from JSON that has fields of the same names.
const (
	least = 1e15
	most  = 1e17
)

// EntryTimes returns the lease time and the expiry of an entry, or the time of the version of a tag, in
// microseconds. 0: not known. head is the beginning of the text. The fields of an entry may come in
// any order, but the lease time and the expiry come before its tags and its value.
func EntryTimes(head string, isTag bool) (leased, expiry uint64) {
	if isTag {
		random, micros, ok := strings.Cut(head, ":")
		if n, err := strconv.ParseUint(micros, 10, 64); ok && err == nil && random != "" && n > least && len(head) < keyspace.HeadBytes {
			return n, 0
		}
		return 0, 0
	}
	rest, ok := strings.CutPrefix(head, "{")
	for ok && (leased == 0 || expiry == 0) {
		var name, value string
		name, rest, _ = strings.Cut(rest, ":")
		if value, rest, ok = cutField(rest); !ok {
			return 0, 0
		}
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case name == `"b"` && n > least && n < most:
			leased = n
		case name == `"e"` && n > least/1000 && n < most/1000:
			expiry = n * 1000
		}
	}
	if !ok {
		return 0, 0
	}
	return leased, expiry
}

// cutField returns a number, or a text without a backslash, and what follows the comma after it.
func cutField(text string) (value, rest string, ok bool) {
	if quoted, isText := strings.CutPrefix(text, `"`); isText {
		value, rest, ok = strings.Cut(quoted, `"`)
		rest, _ = strings.CutPrefix(rest, ",")
		return "", rest, ok && !strings.Contains(value, `\`)
	}
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	if n == 0 || n == len(text) || text[n] != ',' && text[n] != '}' {
		return "", "", false
	}
	return text[:n], text[n+1:], true
}
