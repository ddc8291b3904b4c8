package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// sweepMetrics implements maintenance.SweepMetrics.
type sweepMetrics struct{ m *metrics }

func (s sweepMetrics) Call() (end func()) { return s.m.mysql.begin(callSweeps) }

func (s sweepMetrics) Took(d time.Duration) { s.m.sweepSeconds.Observe(d.Seconds()) }

func (s sweepMetrics) Swept(sweeps int, keys int64) {
	s.m.sweeps.Add(float64(sweeps))
	s.m.sweptKeys.Add(float64(keys))
}

func (s sweepMetrics) SoFar(kind store.SweepKind, done, size int64) {
	s.m.sweepDone.WithLabelValues(string(kind)).Set(float64(done))
	s.m.sweepSize.WithLabelValues(string(kind)).Set(float64(size))
}
