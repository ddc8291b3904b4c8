package keyspace

import (
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// sameSlotTag is a text that, as a hash tag, leads to the slot of key. It is the key's own tag or the key itself, so
// that people can read it; a key with a } but no tag cannot be a tag, and gets the smallest number whose slot is the
// same: 16,384 tries or so, well below a millisecond.
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
