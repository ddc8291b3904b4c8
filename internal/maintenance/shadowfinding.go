package maintenance

import (
	"crypto/sha1"
	"encoding/json"
	"time"

	"github.com/unstale/unstale/protocol"
)

// The outcomes of a confirmed difference.
const (
	// NoRow: nothing was unlinked since the lease of the entry. A write has no row, its row does
	// not reach the key by the map, or the loader of the entry read old data.
	NoRow = "no_row"
	// Survived: the key or one of its tags was unlinked since then, and the entry is still there.
	Survived = "survived"
)

// A Finding is a confirmed difference.
type ShadowFinding struct {
	protocol.Shadow
	Outcome  string
	Entities []string // whose rows reach the key or its tags by the map
}

// A Stored is a finding in cache_outbox_shadow, without tags and digest.
type ShadowStored struct {
	ShadowFinding
	At time.Time // when it was confirmed; UTC, the database's clock
}

// id identifies the entry: each process that reads it reports it.
func (f *ShadowFinding) id() []byte {
	sum := sha1.Sum([]byte(f.Key + "\x00" + f.Digest))
	return sum[:]
}

// list returns the JSON of texts, never null.
func list(texts []string) string {
	text, _ := json.Marshal(append([]string{}, texts...)) // text: it cannot fail
	return string(text)
}
