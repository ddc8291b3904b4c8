package status

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

const (
	// reportsSince is the age of reports that ReadReaders reads.
	reportsSince = 10 * time.Minute
	// maxReaders bounds the readers in a status.
	maxReaders = 1000
)

// ReadReaders adds the readers that reported lately to a status, each with its newest report. It
// adds none if the account may not read reports.
func ReadReaders(ctx context.Context, c *keyspace.Contents, s *store.Status) {
	seen := map[string]bool{}
	_ = c.Reports(ctx, time.Now().Add(-reportsSince), func(r protocol.Report, _ time.Time) {
		if seen[r.Process] || len(seen) == maxReaders {
			return
		}
		seen[r.Process] = true
		if r.Reads != "" {
			s.Readers = append(s.Readers, store.Reader{Process: r.Process, Reads: strings.Split(r.Reads, ",")})
		}
	})
	slices.SortFunc(s.Readers, func(a, b store.Reader) int { return strings.Compare(a.Process, b.Process) })
}
