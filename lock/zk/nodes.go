package zk

import (
	"net/url"
	"strconv"

	"github.com/unstale/unstale/lock/internal/locking"
)

// nodeName returns the name of a lock's node: the lock's own, with escapes for every byte that a
// path cannot have.
func nodeName(name string) string {
	switch name {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(name)
}

// tokenLength is the length of a token as text. The name of a contender begins with it:
// TOKEN-SEQUENCE.
const tokenLength = 2 * len(locking.Token{})

// digits is the number of digits that ZooKeeper appends to a name. After 2^31 nodes a minus sign
// precedes them.
const digits = 10

// sequence reads that number.
func sequence(node string) (n int32, ok bool) {
	begin := max(0, len(node)-digits)
	if isOurs(node) {
		begin = tokenLength + 1
	}
	parsed, err := strconv.ParseInt(node[begin:], 10, 32)
	return int32(parsed), err == nil && len(node) >= digits
}

// isOurs reports whether this package has created a node. Nodes of other recipes share the queue.
func isOurs(node string) bool {
	number := len(node) - tokenLength - 1
	return (number == digits || number == digits+1) && node[tokenLength] == '-'
}

// position returns the first node, and the one directly before ours, if any.
func position(nodes []string, ours string) (first, before string, found bool) {
	own, _ := sequence(ours)
	var least, nearest int32 // since own: numbers wrap around, so only differences count
	for _, node := range nodes {
		n, ok := sequence(node)
		if !ok {
			continue
		}
		since := n - own
		if first == "" || since < least {
			first, least = node, since
		}
		if since < 0 && (before == "" || since > nearest) {
			before, nearest = node, since
		}
		found = found || node == ours
	}
	return first, before, found
}
