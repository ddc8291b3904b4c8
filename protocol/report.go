package protocol

import (
	"fmt"
	"strconv"
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
