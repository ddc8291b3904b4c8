package verify

import (
	"fmt"
	"time"
)

// A finding is a read of a version that was too old.
type finding struct {
	Key       string `json:"key"`
	Got       uint64 `json:"got"`       // the version that was read
	Committed uint64 `json:"committed"` // one that was due
	At        moment `json:"at"`        // when that was committed
	Due       moment `json:"due"`
	Began     moment `json:"began"` // the read
	Source    string `json:"source"`
	Process   int    `json:"process"`
	Wrong     string `json:"wrong,omitempty"` // what no time excuses
}

func (f finding) String() string {
	if f.Process == everybody {
		return f.Key + ": " + f.Wrong
	}
	if f.Wrong != "" {
		return fmt.Sprintf("%s, from %s in reader %d: %s", f.Key, f.Source, f.Process, f.Wrong)
	}
	return fmt.Sprintf("%s, from %s in reader %d: version %d, %.3f s after version %d was committed and %.3f s after the bound",
		f.Key, f.Source, f.Process, f.Got, float64(f.Began-f.At)/1e9, f.Committed, float64(f.Began-f.Due)/1e9)
}

// A verdict is the result of the check of a read.
type verdict struct {
	stale   bool     // older than a version committed before it began
	excused bool     // beyond its bound, in a window
	finding *finding // beyond its bound
}

// judge compares a read with the commits of its key. grace is how long after a window reads are
// excused.
func (t *table) judge(reader, key int, version uint64, began, ended moment, grace time.Duration) (v verdict) {
	r := &t.rows[key]
	if begun := r.begun.Load(); version > begun {
		return verdict{finding: &finding{Got: version, Committed: begun, Began: began, Wrong: fmt.Sprintf("version %d, which was never written: the latest is %d", version, begun)}}
	}
	done := r.done.Load()
	for w := max(version+1, done-min(done, depth-2)); w <= done; w++ {
		c := &r.commits[w%depth]
		at, due := c.at.Load(), c.due.Load()
		if c.version.Load() != w || at > began {
			continue // overwritten meanwhile, or committed after the read had begun
		}
		v.stale = true
		if due == 0 || began <= due {
			raise(c, began-at)
			continue
		}
		if t.excused(began, ended, grace.Nanoseconds(), reader) {
			v.excused = true
			continue
		}
		raise(c, began-at)
		if v.finding != nil {
			continue
		}
		v.finding = &finding{Got: version, Committed: w, At: at, Due: due, Began: began}
	}
	return v
}

// raise sets the commit's worst staleness to at least staleness.
func raise(c *commit, staleness int64) {
	for worst := c.worst.Load(); staleness > worst; worst = c.worst.Load() {
		if c.worst.CompareAndSwap(worst, staleness) {
			return
		}
	}
}
