package keyspace

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// maxNamesPerUnlink is the largest number of names of one UNLINK. Redis serves no other client
	// meanwhile: 500 names take a quarter of a millisecond.
	maxNamesPerUnlink = 500
	// maxNamesPerPipeline and maxBytesPerPipeline bound one pipeline. It must take much less than
	// one Timeout: 10,000 names take Redis some 10 ms, and a megabyte takes a slow network 80 ms.
	maxNamesPerPipeline = 10_000
	maxBytesPerPipeline = 1 << 20
)

// A chunk is the units of one UNLINK, in Cluster all of one slot.
type chunk []unit

// command builds the UNLINK, each lease before its key.
func (c chunk) command(ctx context.Context) *redis.IntCmd {
	args := make([]any, 1, 1+2*len(c))
	args[0] = "unlink"
	for _, u := range c {
		if u.lease != "" {
			args = append(args, u.lease)
		}
		args = append(args, u.key)
	}
	return redis.NewIntCmd(ctx, args...)
}

// size counts names and bytes.
func (c chunk) size() (names, bytes int) {
	for _, u := range c {
		n, b := u.size()
		names, bytes = names+n, bytes+b
	}
	return names, bytes
}

// chunks cuts units into commands.
func (u *Unlinker) chunks(units []unit) []chunk {
	if u.nodes.cluster == nil {
		return cut(nil, units)
	}
	bySlot := make([]uint64, len(units)) // slot, then position
	for i, u := range units {
		bySlot[i] = uint64(protocol.Slot(u.key))<<32 | uint64(i)
	}
	slices.Sort(bySlot)
	sorted := make([]unit, len(units))
	for i, s := range bySlot {
		sorted[i] = units[uint32(s)]
	}
	var chunks []chunk
	for start, i := 0, 1; i <= len(sorted); i++ {
		if i == len(sorted) || bySlot[i]>>32 != bySlot[start]>>32 {
			chunks = cut(chunks, sorted[start:i])
			start = i
		}
	}
	return chunks
}

// cut appends chunks of at most maxNamesPerUnlink names and maxBytesPerPipeline bytes, and of one
// unit at least.
func cut(chunks []chunk, units []unit) []chunk {
	start, names, bytes := 0, 0, 0
	for i, u := range units {
		n, b := u.size()
		if i > start && (names+n > maxNamesPerUnlink || bytes+b > maxBytesPerPipeline) {
			chunks = append(chunks, units[start:i])
			start, names, bytes = i, 0, 0
		}
		names, bytes = names+n, bytes+b
	}
	if start < len(units) {
		chunks = append(chunks, units[start:])
	}
	return chunks
}

// oneByOne makes a chunk of each unit.
func oneByOne(units []unit) []chunk {
	chunks := make([]chunk, len(units))
	for i := range units {
		chunks[i] = units[i : i+1]
	}
	return chunks
}

// nextRound splits off the chunks of the next pipeline, at least one.
func nextRound(chunks []chunk) (round, rest []chunk) {
	var names, bytes int
	for i, c := range chunks {
		n, b := c.size()
		names, bytes = names+n, bytes+b
		if i > 0 && (names > maxNamesPerPipeline || bytes > maxBytesPerPipeline) {
			return chunks[:i], chunks[i:]
		}
	}
	return chunks, nil
}
