package console

import (
	"strings"

	"github.com/unstale/unstale/internal/store"
)

// A liveWorker is one row of the panel "workers".
type liveWorker struct{ store.WorkerNote }

// Problems returns what is wrong with a worker, a line each.
func (w liveWorker) Problems() (list []string) {
	for _, p := range []struct{ what, text string }{
		{"", w.Error}, {"rows make no progress: ", w.StallError},
		{"the map's file is refused: ", w.MapError}, {"the next release refuses the map: ", w.MapWarning},
	} {
		if line, _, _ := strings.Cut(p.text, "\n"); line != "" {
			list = append(list, p.what+line)
		}
	}
	return list
}
