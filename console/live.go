package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// pageQueue is how many events may wait for a page. A page that is further behind is
	// disconnected; its browser connects again.
	pageQueue  = 64
	writeLimit = 10 * time.Second // for an event
	// keepAlive is how often a page receives proof that its worker lives. Proxies then keep a quiet
	// connection too. console.js knows it.
	keepAlive   = 2 * time.Second
	mostStreams = 2000
)

// A hub sends changed panels to all open pages. While there are pages, one goroutine per source
// keeps it current. Safe for concurrent use.
type hub struct {
	sources []*source
	changed func(*source, reading) [][]byte // renders the panels of a source, as events
	serves  func(*http.Request) bool
	base    context.Context

	mu     sync.Mutex
	pages  map[chan []byte]bool
	latest map[*source][][]byte
	stop   context.CancelFunc // ends the goroutines; nil: none run
	loops  sync.WaitGroup
}

// join adds a page. The latest events are already in its channel. A closed channel means that the
// page is too slow. nil: there are too many pages.
func (h *hub) join() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pages) >= mostStreams || h.base.Err() != nil {
		return nil
	}
	page := make(chan []byte, pageQueue)
	for _, events := range h.latest {
		for _, e := range events {
			page <- e
		}
	}
	h.pages[page] = true
	if h.stop == nil {
		var ctx context.Context
		ctx, h.stop = context.WithCancel(h.base)
		for _, s := range h.sources {
			h.loops.Go(func() { h.follow(ctx, s) })
		}
	}
	return page
}

// leave removes a page.
func (h *hub) leave(page chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pages, page)
	if len(h.pages) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
		clear(h.latest) // it would be old when the next page opens
	}
}

// follow keeps a source current until ctx ends.
func (h *hub) follow(ctx context.Context, s *source) {
	for {
		r := s.get(ctx, h.base)
		if ctx.Err() == nil {
			h.broadcast(ctx, s, h.changed(s, r))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.rest(r.err)):
		}
	}
}

// broadcast passes the events that differ from the previous ones to all pages.
func (h *hub) broadcast(ctx context.Context, s *source, events [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	before := h.latest[s]
	h.latest[s] = events
	for i, e := range events {
		if before != nil && bytes.Equal(before[i], e) {
			continue
		}
		for page := range h.pages {
			select {
			case page <- e:
			default:
				delete(h.pages, page)
				close(page)
			}
		}
	}
}

// stream serves server-sent events.
func (h *hub) stream(w http.ResponseWriter, r *http.Request) {
	page := h.join()
	if page == nil {
		http.Error(w, "too many open pages", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(page)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	out := http.NewResponseController(w)
	write := func(event []byte) bool {
		if !h.serves(r) {
			return false
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit)) // not every server has deadlines
		_, err := w.Write(event)
		return err == nil && out.Flush() == nil
	}
	if !write([]byte("retry: 2000\n\n")) {
		return
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-h.base.Done():
			return
		case event, ok := <-page:
			if !ok || !write(event) {
				return
			}
		case <-alive.C:
			if !write(event("alive", "1")) {
				return
			}
		}
	}
}

// event returns a server-sent event.
func event(name, data string) []byte {
	lines := strings.NewReplacer("\r", "", "\n", "\ndata: ").Replace(data) // a \r would end the line
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, lines)
}
