package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// readsVersionLength is the number of hex digits of a fingerprint of reads.
const readsVersionLength = 12

// ReadsVersion returns the fingerprint of what readers store: 12 hex digits of the SHA-256 of a
// hash of the map's section reads and of the values of the vars that it uses, in file order.
// Readers and workers compute it, so an operator sees readers that were built from another map, or
// that run with another environment.
func ReadsVersion(hash string, values []string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "reads 1 %s %q", hash, values))
	return hex.EncodeToString(sum[:])[:readsVersionLength]
}
