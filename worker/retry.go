package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// expandPartly expands a change whose lookup has failed at the first attempt, as far as that needs
// no lookup. This part is applied and journalled while the row waits. The attempt with a successful
// lookup applies the whole plan.
func (c *change) expandPartly(m *invalidation.Map) {
	if c.fault == nil || c.fault.Reason != invalidation.LookupFailed || c.row.Attempts > 0 {
		return
	}
	plan, err := m.ExpandWithoutLookups(c.decoded)
	if err == nil && plan.Len() > 0 { // any other fault of the row shows when its lookup succeeds
		c.plan, c.partial = plan, true
	}
}

// maxCause bounds the cause in the error text of a row. The text after the cause is then not cut.
const maxCause = 3 << 10

// errorText returns the text of the fault for operators, with the applied part of the row. Later
// attempts keep that part, with any fault.
func (c *change) errorText() string {
	text, part := c.fault.Error(), ""
	if at := strings.LastIndex(c.row.LastError, store.PartMark); at >= 0 {
		part = c.row.LastError[at:]
	}
	if c.partial {
		part = fmt.Sprintf("%skeys %d, patterns %d, sets %d; the others may be stale", store.PartMark, len(c.plan.Keys), len(c.plan.Patterns), len(c.plan.Sets))
	}
	if part == "" {
		return text
	}
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "") + part
}

func (c *change) settleFault(cfg Config, s *store.Settlement) {
	reason, text := string(c.fault.Reason), c.errorText()
	attempts := c.row.Attempts + 1
	after := retryDelay(cfg.RetryDelay, attempts)
	switch {
	case c.known && attempts < knownTries:
		after = min(after, sleep.Jitter(knownDelay, 0.25))
	case !c.retry || attempts >= cfg.MaxAttempts:
		s.Dead = append(s.Dead, store.DeadRow{ID: c.row.ID, Reason: reason, Error: text})
		return
	}
	s.Delays = append(s.Delays, store.Delay{ID: c.row.ID, After: after, Attempts: attempts, Reason: reason, Error: text})
}

// awayDelay grows with the waiting time of a row: thousands of rows must not keep MySQL busy. It
// stays short enough to end soon after the shard is available again.
func awayDelay(age time.Duration) time.Duration {
	return sleep.Jitter(min(max(age/4, time.Second), 5*time.Second), 0.25)
}

// retryDelay doubles with each attempt and is jittered by a quarter either way.
func retryDelay(base time.Duration, attempts int) time.Duration {
	d := base << min(attempts-1, 20)
	return sleep.Jitter(min(max(d, base), longestRetry), 0.25)
}
