package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// forgetAfter bounds the age of a worker's status here. MySQL keeps its copy for a day.
const forgetAfter = time.Hour

// A status is a field of keyspace.WorkersHash.
type status struct {
	Source string `json:"source"` // the ID of the outbox
	store.WorkerNote
}

// PostWorker publishes what a worker of an outbox is at. The error is a *keyspace.Outage.
func PostWorker(ctx context.Context, b *keyspace.StatusHashes, source string, n store.WorkerNote) error {
	text, err := json.Marshal(status{source, n})
	if err != nil {
		return fmt.Errorf("publish worker status: %w", err)
	}
	return b.Post(ctx, keyspace.WorkersHash, n.ID, string(text))
}

// Workers lists the workers of an outbox that published their status within an hour, the latest
// first. The error is a *keyspace.Outage.
func Workers(ctx context.Context, b *keyspace.StatusHashes, source string) ([]store.WorkerNote, error) {
	posted, err := b.Read(ctx, keyspace.WorkersHash)
	if err != nil {
		return nil, err
	}
	var list []store.WorkerNote
	for _, p := range posted {
		var s status
		if json.Unmarshal([]byte(p.Text), &s) != nil || s.Source != source || p.Age > forgetAfter {
			continue
		}
		n := s.WorkerNote
		n.ID, n.Silent, n.For = p.Field, p.Age, n.For+p.Age
		for _, age := range []*time.Duration{n.Drained, n.Heavy} {
			if age != nil {
				*age += p.Age
			}
		}
		list = append(list, n)
	}
	sortWorkers(list)
	return list, nil
}

// ForgetWorkers removes what no worker has renewed for an hour. The error is a *keyspace.Outage.
func ForgetWorkers(ctx context.Context, b *keyspace.StatusHashes) error {
	posted, err := b.Read(ctx, keyspace.WorkersHash)
	if err != nil {
		return err
	}
	var old []string
	for _, p := range posted {
		if p.Age > forgetAfter {
			old = append(old, p.Field)
		}
	}
	return b.Remove(ctx, keyspace.WorkersHash, old...)
}

// addWorkers adds what workers publish in Redis to a status. Errors become part of it.
func addWorkers(ctx context.Context, b *keyspace.StatusHashes, s *store.Status) {
	workers, err := Workers(ctx, b, s.Source)
	mergeWorkers(s, workers, err)
	if err == nil { // otherwise it is the same error
		s.Conflicts, _, s.ConflictsError = Conflicts(ctx, b, s.Source)
	}
}

// mergeWorkers adds the workers of Redis to a status, or the error if they cannot be read. The later
// status of each worker counts: MySQL does not have it while it refuses writes.
func mergeWorkers(s *store.Status, workers []store.WorkerNote, err error) {
	s.AskedRedis, s.RedisError = true, err
	if err != nil {
		return
	}
	if len(workers) > 0 {
		s.WorkersError = nil
	}
	all := slices.Clone(s.Workers)
	for _, w := range workers {
		i := slices.IndexFunc(all, func(o store.WorkerNote) bool { return o.ID == w.ID })
		switch {
		case i < 0:
			all = append(all, w)
		case w.Silent.Abs() < all[i].Silent.Abs():
			all[i] = w
		default:
			all[i].Reads = w.Reads // MySQL does not have it
		}
	}
	sortWorkers(all)
	s.Workers = all
}

func sortWorkers(list []store.WorkerNote) {
	slices.SortStableFunc(list, func(a, b store.WorkerNote) int { return int(a.Silent - b.Silent) })
}

const (
	// reportsSince is the age of reports that readReaders reads.
	reportsSince = 10 * time.Minute
	// maxReaders bounds the readers in a status.
	maxReaders = 1000
)

// readReaders adds the readers that reported lately to a status, each with its newest report. It
// adds none if the account may not read reports.
func readReaders(ctx context.Context, c *keyspace.Contents, s *store.Status) {
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
