package worker

import "time"

// vanishInterval is the time between two lines of what vanishes: where it is meant so, all rows of an entity may do it.
const vanishInterval = time.Hour

// A vanishing counts what rows do without any effect: it is no fault, and may be a mistake that nobody would hear of.
type vanishing struct {
	counts  *entityCounts
	untold  int       // since the last line
	due     time.Time // when the next line may come
	example []any     // for that line, as the log's arguments
}

// note counts n of a row. The example is asked for once for a line.
func (v *vanishing) note(c *change, n int, example func() []any) {
	v.counts.add(c.row.Entity, n)
	v.untold += n
	if v.example == nil && !time.Now().Before(v.due) {
		v.example = append([]any{"entity", c.row.Entity, "id", c.row.EntityID}, example()...)
	}
}

// tell writes the line that is due, if there is one.
func (v *vanishing) tell(log func(message string, args ...any), message, unit string) {
	if v.example == nil {
		return
	}
	log(message, append([]any{unit, v.untold}, v.example...)...)
	v.untold, v.example, v.due = 0, nil, time.Now().Add(vanishInterval)
}

// noteVanished counts what the rows of a batch that was just settled gave in vain, and the templates that made nothing of them. What is at
// fault is told of elsewhere, and a repeat was counted with its row.
func (w *engine) noteVanished(b *batch) {
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault != nil || c.away != nil || c.row.Repeated {
			continue
		}
		if n := c.plan.Dropped; n > 0 {
			w.dropped.note(c, n, func() []any { return b.droppedExample(c) })
		}
		if len(c.decoded.Params) == 0 {
			continue
		}
		if names := b.m.Undeclared(c.decoded); len(names) > 0 {
			w.undeclared.note(c, len(names), func() []any { return []any{"parameter", names[0]} })
		}
	}
	w.dropped.tell(w.log.Info, "templates made nothing, since rows do not give an optional name", "templates")
	w.undeclared.tell(w.log.Warn, "rows give parameters that the map does not declare for their entity, and they are ignored, see 'unstale map explain'", "parameters")
}

func (b *batch) droppedExample(c *change) []any {
	d, _ := b.m.FirstDropped(c.decoded, b.answers)
	args := []any{"template", d.Text, "absent", d.Param}
	if d.Entity != c.row.Entity {
		args = append(args, "as", d.Entity)
	}
	return args
}
