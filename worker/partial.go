package worker

import (
	"fmt"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// expandPartly expands a change whose lookup has failed at the first attempt, as far as that needs no
// lookup. This part is applied and journalled while the row waits. The attempt at which the lookup
// succeeds applies the whole plan.
func (b *batch) expandPartly(c *change) {
	if c.fault == nil || c.fault.Reason != invalidation.LookupFailed || c.row.Attempts > 0 {
		return
	}
	plan, err := b.m.ExpandWithoutLookups(c.decoded)
	if err == nil && plan.Len() > 0 { // any other fault of the row shows when its lookup succeeds
		c.plan, c.partial = plan, true
	}
}

// applies reports whether the plan of the change goes to Redis and to the journal.
func (c *change) applies() bool { return c.away == nil && (c.fault == nil || c.partial) }

// partMark begins the part of a row's error text that says what was applied without lookups. Later
// attempts hand it on.
const partMark = "; applied without lookups: "

// maxCause bounds the cause in the error text of a row, so that the text behind it is not cut.
const maxCause = 3 << 10

// errorText returns the text of the fault for operators, with what was applied of the row.
func (c *change) errorText() string {
	text := c.fault.Error()
	if c.fault.Reason != invalidation.LookupFailed {
		return text
	}
	part := ""
	if at := strings.LastIndex(c.row.LastError, partMark); at >= 0 {
		part = c.row.LastError[at:]
	}
	if c.partial {
		part = fmt.Sprintf("%skeys %d, patterns %d, sets %d; the others may be stale", partMark, len(c.plan.Keys), len(c.plan.Patterns), len(c.plan.Sets))
	}
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "") + part
}
