package store

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// A Journey is how a batch came to be settled. Its times are ago, counted from when the batch was settled by the worker's
// clock, so that no two clocks are compared; 0: not known.
type Journey struct {
	Claimed   time.Duration // the claim was answered
	Unlinked  time.Duration // Redis had confirmed the last key
	Published time.Duration // Redis had confirmed the last message; 0 too where there was nothing to publish
	Receivers int           // who heard the message that the fewest heard; -1: not known
	Runs      []Run         // the numbers of the messages; none: not known
}

// A Run is messages of one epoch without a gap, First and Last included.
type Run struct {
	Epoch       uint64 // its EpochHash
	First, Last uint64
}

// EpochHash stands for the epoch of messages, which is random, in the journal, where its text would take thrice the room: FNV-1a.
func EpochHash(epoch string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(epoch))
	return h.Sum64()
}

// Marks are what a Journey is made of.
type Marks struct {
	Claimed, Unlinked, Published time.Time // zero: not known
	Receivers                    int       // as in Journey
	Runs                         []Run     // as in Journey
}

const journeyFormat = 1

// journey packs the journey of a batch that is settled now: one byte of format, the three times in microseconds, the
// receivers and one, for each entry the distance in microseconds of when its row was written from the one before, and for
// each run of messages the epoch, the first number and how many follow it. Nothing where the batch has no rows of which
// that is known.
func (m *Marks) journey(entries []Entry) []byte {
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

// readJourney reads what journey packed, and tells the entries when their rows were written. It is nil where that is not
// known: a worker from before it settled the batch, or what is there is not for these entries.
func readJourney(b []byte, entries []Entry) *Journey {
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
	for len(d.rest) > 8 && !d.bad { // none of a worker from before they were noted
		r := Run{Epoch: binary.BigEndian.Uint64(d.rest)}
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
