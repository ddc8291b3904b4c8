package worker

import (
	"log/slog"
	"time"
)

// vanishInterval is the time between two lines of what vanishes: where it is meant so, all rows of
// an entity may do it.
const vanishInterval = time.Hour

// A vanishing counts parts of rows without any effect: that is not a fault, and may be a mistake
// that otherwise stays unnoticed.
type vanishing struct {
	counts  *entityCounts
	untold  int       // since the last line
	due     time.Time // when the next line may come
	example []any     // for that line, as the log's arguments
}

// note counts n of a row. It asks for the example once per log record.
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

// vanished counts what rows do without any effect. Owned by the loop.
type vanished struct {
	log        *slog.Logger
	dropped    vanishing // templates
	undeclared vanishing // parameters
}

func newVanished(log *slog.Logger, maps *mapGauges) *vanished {
	return &vanished{log: log, dropped: vanishing{counts: maps.dropped}, undeclared: vanishing{counts: maps.undeclared}}
}

// note counts the unused values of the rows of a batch that was just settled, and the templates
// that made nothing of them. Faults are reported elsewhere, and a repeat was counted with its row.
func (v *vanished) note(b *batch) {
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault != nil || c.away != nil || c.row.Repeated {
			continue
		}
		if n := c.plan.Dropped; n > 0 {
			v.dropped.note(c, n, func() []any { return b.droppedExample(c) })
		}
		if len(c.decoded.Params) == 0 {
			continue
		}
		if names := b.m.Undeclared(c.decoded); len(names) > 0 {
			v.undeclared.note(c, len(names), func() []any { return []any{"parameter", names[0]} })
		}
	}
	v.dropped.tell(v.log.Info, "templates made nothing, since rows do not give an optional name", "templates")
	v.undeclared.tell(v.log.Warn, "rows give parameters that the map does not declare for their entity, and they are ignored, see 'unstale map explain'", "parameters")
}

func (b *batch) droppedExample(c *change) []any {
	d, _ := b.m.FirstDropped(c.decoded, b.answers)
	args := []any{"template", d.Text, "absent", d.Param}
	if d.Entity != c.row.Entity {
		args = append(args, "as", d.Entity)
	}
	return args
}
