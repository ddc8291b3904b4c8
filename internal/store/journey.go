package store

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// A Journey is the timeline of a batch. Its times are durations before the settlement, by the
// worker's clock, so clocks are never compared. 0: unknown.
type Journey struct {
	Claimed  time.Duration // the claim returned
	Unlinked time.Duration // Redis had confirmed the last key
	// Redis had confirmed the last message; also 0 if there was nothing to publish
	Published time.Duration
	Receivers int          // of the message with the fewest receivers; -1: unknown
	Runs      []MessageRun // the numbers of the messages; none: unknown
}

// A Run is a sequence of messages of one publisher epoch without a gap, from First to Last.
type MessageRun struct {
	Epoch       uint64 // its EpochHash
	First, Last uint64
}

// EpochHash returns a hash of a publisher epoch for the journal: FNV-1a. The random epoch itself
// would take three times the space.
func EpochHash(epoch string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(epoch))
	return h.Sum64()
}

// Marks are the times that a Journey is computed from.
type Marks struct {
	Claimed, Unlinked, Published time.Time    // zero: not known
	Receivers                    int          // as in Journey
	Runs                         []MessageRun // as in Journey
}

const journeyFormat = 1

// Journey encodes the timeline of a batch that is settled now. It returns nil if the batch has no
// rows with known times. The encoding is:
//
//   - one byte of format,
//   - the three times in microseconds,
//   - the number of receivers plus one,
//   - for each entry, the distance of its insert time from the previous one in microseconds,
//   - for each run of messages, the epoch, the first number and how many follow.
func (m *Marks) Journey(entries []JournalEntry) []byte {
	if m.Claimed.IsZero() {
		return nil
	}
	b := append(make([]byte, 0, 32+2*len(entries)), journeyFormat)
	for _, at := range [...]time.Time{m.Claimed, m.Unlinked, m.Published} {
		ago := time.Duration(0)
		if !at.IsZero() {
			ago = max(time.Since(at), time.Microsecond)
		}
		b = binary.AppendUvarint(b, uint64(ago.Microseconds()))
	}
	b = binary.AppendUvarint(b, uint64(m.Receivers+1))
	before := int64(0)
	for i := range entries {
		b = binary.AppendVarint(b, entries[i].WrittenMicros-before)
		before = entries[i].WrittenMicros
	}
	for _, r := range m.Runs {
		b = binary.BigEndian.AppendUint64(b, r.Epoch)
		b = binary.AppendUvarint(b, r.First)
		b = binary.AppendUvarint(b, r.Last-r.First)
	}
	return b
}

// readJourney decodes the result of Marks.Journey and sets the insert times of the entries. It
// returns nil if they are unknown: an older worker settled the batch, or the data do not fit these
// entries.
func readJourney(b []byte, entries []JournalEntry) *Journey {
	if len(b) == 0 || b[0] != journeyFormat {
		return nil
	}
	d := decoder{rest: b[1:]}
	var j Journey
	for _, ago := range [...]*time.Duration{&j.Claimed, &j.Unlinked, &j.Published} {
		*ago = time.Duration(d.number()) * time.Microsecond
	}
	j.Receivers = int(d.number()) - 1
	written := make([]int64, len(entries))
	before := int64(0)
	for i := range written {
		distance, n := binary.Varint(d.rest)
		if n <= 0 {
			return nil
		}
		d.rest = d.rest[n:]
		before += distance
		written[i] = before
	}
	for len(d.rest) > 8 && !d.bad { // none from a worker of a version without runs
		r := MessageRun{Epoch: binary.BigEndian.Uint64(d.rest)}
		d.rest = d.rest[8:]
		r.First = d.number()
		r.Last = r.First + d.number()
		j.Runs = append(j.Runs, r)
	}
	if d.bad || len(d.rest) > 0 {
		return nil
	}
	for i := range entries {
		entries[i].WrittenMicros = written[i]
	}
	return &j
}
