package bench

import (
	"runtime/debug"
	"time"
)

// A memoryWatch records the peak memory of this process while a function runs.
type memoryWatch struct {
	stop, stopped chan struct{}
	most          int64
}

// watchMemory begins with as little as can be: what was garbage before is none of the thing's.
func watchMemory() *memoryWatch {
	debug.FreeOSMemory()
	w := &memoryWatch{stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(w.stopped)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			w.most = max(w.most, resident())
			select {
			case <-w.stop:
				return
			case <-ticker.C:
			}
		}
	}()
	return w
}

// end returns the most, in megabytes.
func (w *memoryWatch) end() float64 {
	close(w.stop)
	<-w.stopped
	return float64(w.most) / 1e6
}
