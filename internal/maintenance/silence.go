package maintenance

import (
	"errors"
	"log/slog"
	"slices"
	"time"
)

// silentLimit is how long heartbeats are withheld before a warning is logged: as long as readers
// wait for them.
const silentLimit = 3 * Period

// silence logs and measures that heartbeats are withheld.
type silence struct {
	log   *slog.Logger
	sends interface{ Set(float64) }
	since time.Time // when it began; zero while heartbeats are sent
	told  []string  // reasons logged since a heartbeat was last sent
}

// note records that a heartbeat was sent, or why not. Readiness ignores this, since rows are
// processed in any case.
func (s *silence) note(err error) {
	if err == nil {
		if len(s.told) > 0 {
			s.log.Info("heartbeats are sent again")
		}
		s.since, s.told = time.Time{}, nil
		s.sends.Set(1)
		return
	}
	s.sends.Set(0)
	if s.since.IsZero() {
		s.since = time.Now()
	}
	why := silenceOf(err)
	if time.Since(s.since) >= silentLimit && !slices.Contains(s.told, why) {
		s.told = append(s.told, why)
		s.log.Warn("heartbeats are withheld, so readers keep nothing in memory", "error", err)
	}
}

// silenceOf returns why heartbeats are withheld, without the details of an outage.
func silenceOf(err error) string {
	for _, why := range []error{errNotPolled, ErrHealing, errUnstarted, errUnproven, ErrPaused, errShardAway, errIdle, errChannels} {
		if errors.Is(err, why) {
			return why.Error()
		}
	}
	return State(err)
}

// none records that no channel takes heartbeats.
func (s *silence) none() {
	s.since, s.told = time.Time{}, nil
	s.sends.Set(0)
}
