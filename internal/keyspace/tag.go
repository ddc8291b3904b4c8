package keyspace

import (
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// sameSlotTag returns a text that, as a hash tag, leads to the slot of key. It is the tag of the
// key or the key itself, which is readable. A key with a } but no tag cannot be a tag, so it gets
// the smallest number with the same slot: some 16,384 tries, well below a millisecond.
func sameSlotTag(key string) string {
	if tag, ok := protocol.HashTag(key); ok {
		return tag
	}
	if key != "" && !strings.Contains(key, "}") {
		return key
	}
	want := protocol.Slot(key)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); protocol.Slot(tag) == want {
			return tag
		}
	}
}
