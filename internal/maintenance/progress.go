package maintenance

import "time"

// A progress records how far a healing has come, for the next slice, the log and the metrics.
type progress struct {
	// left are the losses of the last comparison that are not healed yet. Rows settled since then
	// are not included, and another loss resets the list.
	left  []loss
	found bool // this worker has healed some of them
	lose  bool // unlinks are among them
	// expected is the number of batches in left, at most.
	expected uint64

	began, said   time.Time
	batches, keys int
	noticed       bool // something may be missing, and the log reports it
}

// lost records another loss.
func (p *progress) lost() { p.noticed, p.left = true, nil }

func (p *progress) begin(c *HealConfig) {
	if !p.began.IsZero() {
		return
	}
	p.began, p.said = time.Now(), time.Now()
	c.Metrics.Began()
	c.Log.Warn("redis lost unlinks that it had acknowledged; healing from the journal while new rows are processed")
}

func (p *progress) did(c *HealConfig, batches, keys int) {
	p.batches, p.keys = p.batches+batches, p.keys+keys
	c.Metrics.Did(batches, keys)
	p.less(c, batches)
	if time.Since(p.said) >= progressInterval {
		p.said = time.Now()
		c.Log.Info("healing", "batches", p.batches, "keys", p.keys)
	}
}

// less records that fewer batches are left.
func (p *progress) less(c *HealConfig, batches int) {
	p.expected -= min(p.expected, uint64(batches))
	c.Metrics.Left(p.expected)
	c.Turn()
}

func (p *progress) over(c *HealConfig) {
	defer func() { *p = progress{} }()
	c.Metrics.Over()
	switch {
	case p.began.IsZero() && p.noticed:
		c.Log.Info("compared with the journal: redis has everything that was settled")
	case !p.began.IsZero():
		c.Log.Info("healed: redis has everything again", "batches", p.batches, "keys", p.keys,
			"took", time.Since(p.began).Round(time.Millisecond).String())
	}
}
