package worker

import (
	"log/slog"
	"sync"
	"time"

	"github.com/unstale/unstale/outbox"
)

// burialInterval is the time between two lines about dead letters: a broken application makes many.
const burialInterval = 10 * time.Second

// burials tell of dead letters in the log, where somebody may see them who looks at no metric. Safe for concurrent use.
type burials struct {
	mu    sync.Mutex
	said  time.Time
	since int // how many were not told
}

// note tells of the deaths of rows that were just settled, the first of them by name.
func (b *burials) note(log *slog.Logger, rows []outbox.Row, deaths []outbox.Death) {
	if len(deaths) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since += len(deaths)
	if time.Since(b.said) < burialInterval {
		return
	}
	d := deaths[0]
	var entity, id string
	for i := range rows {
		if rows[i].ID == d.ID {
			entity, id = rows[i].Entity, rows[i].EntityID
		}
	}
	log.Warn("rows are dead letters now, see 'unstale dead list'", "rows", b.since,
		"reason", d.Reason, "entity", entity, "id", id, "error", d.Error)
	b.said, b.since = time.Now(), 0
}
