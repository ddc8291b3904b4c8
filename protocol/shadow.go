package protocol

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// ShadowKey is the stream of reports about entries that differ from the results of loaders. It
	// takes a permission of readers.
	ShadowKey = Prefix + "shadow"
	// MaxShadows is how many of these reports the stream keeps, roughly: XADD with MAXLEN ~.
	MaxShadows = 1000
	// MaxShadowKey is how many bytes the key of such a report may have, and MaxShadowTags the JSON
	// of its tags. A reader does not report an entry beyond that.
	MaxShadowKey  = 1024
	MaxShadowTags = 4096
)

// A Shadow reports that a reader has loaded a value twice, and that an entry in Redis still had
// another one at the second load. It does not contain the values.
type Shadow struct {
	Process string   // its name
	Key     string   // in Redis
	Tags    []string // of the entry
	// Lease is the lease time of the entry, by the clock of Redis.
	Lease time.Time
	// Loaded is when the first load began, by the clock of Redis.
	Loaded time.Time
	// Digest is the SHA-1 of the entry, in hexadecimal.
	Digest string
}

// The fields of an entry of the stream, apart from fieldProcess.
const (
	fieldKey    = "key"
	fieldTags   = "tags"
	fieldLease  = "lease"
	fieldLoaded = "loaded"
	fieldDigest = "sha1"
)

// Fields returns the names and values of the entry of a stream, by turns, as XADD takes them. Times
// are in microseconds since 1970.
func (s Shadow) Fields() []string {
	tags, _ := json.Marshal(s.Tags) // text: it cannot fail
	micros := func(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }
	return []string{
		fieldProcess, s.Process, fieldKey, s.Key, fieldTags, string(tags),
		fieldLease, micros(s.Lease), fieldLoaded, micros(s.Loaded), fieldDigest, s.Digest,
	}
}

// ParseShadow reads the fields of an entry. It expects anything, and ignores fields that it does
// not know.
func ParseShadow(fields map[string]string) (Shadow, error) {
	s := Shadow{Process: fields[fieldProcess], Key: fields[fieldKey], Digest: fields[fieldDigest]}
	refuse := func(what string) (Shadow, error) {
		return Shadow{}, fmt.Errorf("shadow read of process %.20q and key %.40q: %s", s.Process, s.Key, what)
	}
	if n := len(s.Process); n == 0 || n > MaxProcess || !utf8.ValidString(s.Process) {
		return refuse(fmt.Sprintf("the process is not UTF-8 of 1 to %d bytes", MaxProcess))
	}
	if n := len(s.Key); n == 0 || n > MaxShadowKey {
		return refuse(fmt.Sprintf("the key is not 1 to %d bytes", MaxShadowKey))
	}
	if sum, err := hex.DecodeString(s.Digest); err != nil || len(sum) != 20 {
		return refuse("the digest is not 40 hexadecimal digits")
	}
	if tags := fields[fieldTags]; len(tags) > MaxShadowTags || json.Unmarshal([]byte(tags), &s.Tags) != nil {
		return refuse(fmt.Sprintf("the tags are not a JSON list of at most %d bytes", MaxShadowTags))
	}
	for name, at := range map[string]*time.Time{fieldLease: &s.Lease, fieldLoaded: &s.Loaded} {
		micros, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil || micros <= 0 || micros > maxMicros {
			return refuse(name + " is not a time in microseconds")
		}
		*at = time.UnixMicro(micros).UTC()
	}
	return s, nil
}

// maxMicros is the year 9999, the last one of a DATETIME.
const maxMicros = 253_402_300_799_999_999
