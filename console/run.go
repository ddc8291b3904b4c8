package console

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	shortRun = 700 * time.Millisecond // an action that ends sooner shows only its result
	keptRuns = 200                    // in memory
)

// A run is an action under way, or its result. It continues when its page is left.
type run struct {
	Action     action
	Says, Find string
	Began      time.Time
	ended      chan struct{}

	mu       sync.Mutex
	progress string
	result   string
	err      error
}

// runs are the latest runs of this process. Safe for concurrent use.
type runs struct {
	mu     sync.Mutex
	byID   map[string]*run
	order  []string
	active sync.WaitGroup
}

// start begins a run, or returns the run that has the ID already. fill completes a new one. It
// returns nil after base has ended.
func (all *runs) start(base context.Context, id string, do func(ctx context.Context, progress func(string)) (string, error), fill func(*run)) *run {
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.byID[id]; known != nil || base.Err() != nil {
		return known
	}
	r := &run{Began: time.Now(), ended: make(chan struct{})}
	fill(r)
	all.byID[id], all.order = r, append(all.order, id)
	if len(all.order) > keptRuns {
		delete(all.byID, all.order[0])
		all.order = all.order[1:]
	}
	all.active.Go(func() {
		defer close(r.ended)
		result, err := do(base, func(progress string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.progress = progress
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.result, r.err = result, err
	})
	return r
}

// get returns a run, or nil.
func (all *runs) get(id string) *run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// wait waits for all runs. Base must have ended.
func (all *runs) wait() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.active.Wait()
}

// showRun serves the progress or the result of an action.
func (c *actor) showRun(w http.ResponseWriter, r *http.Request) {
	found := c.runs.get(r.PathValue("id"))
	if found == nil {
		c.write(w, r, http.StatusNotFound, "run", nil)
		return
	}
	data := struct {
		*run
		Over                  bool
		Progress, Result, Err string
	}{run: found}
	select {
	case <-found.ended:
		data.Over = true
	default:
		w.Header().Set("Refresh", "1") // with and without JavaScript
	}
	found.mu.Lock()
	data.Progress, data.Result = found.progress, found.result
	if found.err != nil {
		data.Err = reason(found.err)
	}
	found.mu.Unlock()
	c.write(w, r, http.StatusOK, "run", data)
}
