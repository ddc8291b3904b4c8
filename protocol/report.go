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
	// ReportKey is the stream in which readers report, if they are permitted to, which messages
	// they have received.
	ReportKey = Prefix + "evicted"
	// MaxReports is how many reports the stream keeps, roughly: XADD with MAXLEN ~.
	MaxReports = 50_000
	// MaxProcess is how many bytes the name of a process may have.
	MaxProcess = 128
)

// A Report records that a process has evicted from L1 the keys of the messages from First to Last
// of one epoch, whether it had them or not. Reports can get lost: a process without reports may
// have evicted keys.
type Report struct {
	Process     string // its name
	Epoch       string
	First, Last uint64 // both included; heartbeats among them
	// Dropped is how many more messages the process has received since the previous report without
	// reporting them.
	Dropped uint64
	// Reads are the fingerprints of the maps from which the process has its keys, separated by
	// commas: see ReadsVersion. Empty: it uses no generated code, or has fetched nothing yet.
	Reads string
}

// The fields of an entry of the stream.
const (
	fieldProcess = "process"
	fieldEpoch   = "epoch"
	fieldFirst   = "first"
	fieldLast    = "last"
	fieldDropped = "dropped"
	fieldReads   = "reads"
)

// Fields returns the names and values of the entry of a stream, by turns, as XADD takes them.
func (r Report) Fields() []string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	fields := []string{fieldProcess, r.Process, fieldEpoch, r.Epoch, fieldFirst, number(r.First), fieldLast, number(r.Last), fieldDropped, number(r.Dropped)}
	if r.Reads != "" {
		fields = append(fields, fieldReads, r.Reads)
	}
	return fields
}

// ParseReport reads the fields of an entry. It expects anything, and ignores fields that it does
// not know.
func ParseReport(fields map[string]string) (Report, error) {
	r := Report{Process: fields[fieldProcess], Epoch: fields[fieldEpoch], Reads: fields[fieldReads]}
	if n := len(r.Process); n == 0 || n > MaxProcess || !utf8.ValidString(r.Process) || r.Epoch == "" {
		return Report{}, fmt.Errorf("report of process %.20q and epoch %.40q: wanted UTF-8 of 1 to %d bytes and an epoch", r.Process, r.Epoch, MaxProcess)
	}
	for _, f := range []struct {
		name string
		to   *uint64
	}{{fieldFirst, &r.First}, {fieldLast, &r.Last}, {fieldDropped, &r.Dropped}} {
		n, err := strconv.ParseUint(fields[f.name], 10, 64)
		if err != nil {
			return Report{}, fmt.Errorf("report of process %q: %s: %w", r.Process, f.name, err)
		}
		*f.to = n
	}
	if r.First == 0 || r.Last < r.First {
		return Report{}, fmt.Errorf("report of process %q: messages %d to %d", r.Process, r.First, r.Last)
	}
	return r, nil
}

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
