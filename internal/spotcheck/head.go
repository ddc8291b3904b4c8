package spotcheck

import (
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
)

// least is a time that no clock of a server shows, in microseconds: 2001. It tells entries from
// JSON that has fields of the same names.
const least = 1e15

// times returns the lease time and the expiry of an entry, or the time of the version of a tag, in
// microseconds. 0: not known. head is the beginning of the text.
func times(head string, isTag bool) (leased, expiry uint64) {
	if isTag {
		random, micros, ok := strings.Cut(head, ":")
		if n, err := strconv.ParseUint(micros, 10, 64); ok && err == nil && random != "" && n > least && len(head) < keyspace.HeadBytes {
			return n, 0
		}
		return 0, 0
	}
	// as package cache writes it: {"e":N,"b":N or {"f":2,"e":N,"b":N
	rest, ok := strings.CutPrefix(head, `{"f":2,"e":`)
	if !ok {
		rest, ok = strings.CutPrefix(head, `{"e":`)
	}
	millis, rest, found := strings.Cut(rest, `,"b":`)
	end := strings.IndexAny(rest, ",}")
	if !ok || !found || end < 0 {
		return 0, 0
	}
	expiry, err := strconv.ParseUint(millis, 10, 64)
	leased, err2 := strconv.ParseUint(rest[:end], 10, 64)
	if err != nil || err2 != nil || leased < least || expiry < least/1000 || expiry > 1e16 {
		return 0, 0
	}
	return leased, expiry * 1000
}
