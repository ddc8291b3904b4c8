package worker

// healMetrics implements maintenance.HealMetrics.
type healMetrics struct{ m *metrics }

func (h healMetrics) Positions() (end func()) { return h.m.mysql.begin(callPositions) }

func (h healMetrics) Call() (end func()) { return h.m.mysql.begin(callHeal) }

func (h healMetrics) Began() {
	h.m.heals.Inc()
	h.m.healing.Set(1)
}

func (h healMetrics) Did(batches, keys int) {
	h.m.healedBatches.Add(float64(batches))
	h.m.healedKeys.Add(float64(keys))
}

func (h healMetrics) Left(batches uint64) { h.m.healingLeft.Set(float64(batches)) }

func (h healMetrics) Over() {
	h.m.healing.Set(0)
	h.Left(0)
}
