package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/invalidation"
)

const (
	// between two queries of the entities of the journal, for any number of unknown ones
	journalInterval = time.Minute
	// after a look that failed: an outage that is over keeps no row waiting
	journalRetry = 5 * time.Second
	journalLimit = time.Second // of one look
	knownTries   = 64          // of a row whose entity was known lately: about an hour
	knownDelay   = time.Minute // the longest wait between two of them
)

// journalEntities remember which entities the journal has, of this worker and of all others.
type journalEntities struct {
	mu    sync.Mutex
	found map[string]bool
	err   error     // the look failed
	due   time.Time // when there is another
}

// has reports whether an entity was settled lately. Where the journal could not be asked it reports
// that: to wait loses nothing.
func (j *journalEntities) has(ctx context.Context, entity string, ask func(context.Context) (map[string]bool, error)) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !time.Now().Before(j.due) {
		ctx, cancel := context.WithTimeout(ctx, journalLimit)
		defer cancel()
		j.found, j.err = ask(ctx)
		interval := journalInterval
		if j.err != nil {
			interval = journalRetry
		}
		j.due = time.Now().Add(interval)
	}
	return j.found[entity], j.err
}

// knownEntities are entities that are not in the map but were known before.
type knownEntities struct {
	maps    *mapFile
	journal journalEntities
	ask     func(context.Context) (map[string]bool, error) // the journal's entities
}

// delay delays rows whose entity the map does not have and had lately: the file was probably cut
// short, or is older than what runs elsewhere. Dead-lettering them would lose what a good map
// cures.
func (k *knownEntities) delay(ctx context.Context, b *batch) {
	known := map[string]string{}
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault == nil || c.fault.Reason != invalidation.UnknownEntity {
			continue
		}
		why, asked := known[c.row.Entity]
		if !asked {
			why = k.lately(ctx, c.row.Entity)
			known[c.row.Entity] = why
		}
		if why != "" {
			c.fault.Err = fmt.Errorf("%w of version %s, but %s", c.fault.Err, b.m.Version(), why)
			c.known = true
		}
	}
}

// lately returns how an entity was known that is not in the map, or "".
func (k *knownEntities) lately(ctx context.Context, entity string) string {
	if version := k.maps.had(entity); version != "" {
		return "the map of version " + version + " had it"
	}
	switch found, err := k.journal.has(ctx, entity, k.ask); {
	case err != nil:
		return "the journal could not be searched for it: " + err.Error()
	case found:
		return "rows of it were settled within the last day"
	}
	return ""
}
