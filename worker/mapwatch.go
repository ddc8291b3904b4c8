package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/invalidation"
)

// mapInterval is how often the file of the map is read. Reading it, instead of watching its
// directory, detects every way to replace a file: edited in place, renamed over, or a ConfigMap's
// symbolic link that changes.
const mapInterval = 2 * time.Second

// A mapWatch keeps the map current.
type mapWatch struct {
	maps    *mapFile
	log     *slog.Logger
	metrics *metrics
}

// run keeps the map current until ctx ends. It logs changes and requested reloads. A map without a
// file stays.
func (w *mapWatch) run(ctx context.Context) {
	f, log := w.maps, w.log
	if f.path == "" {
		return
	}
	ticker := time.NewTicker(mapInterval)
	defer ticker.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.reload:
			asked = true
		}
		old := f.Map()
		changed, err := f.read()
		lost := gone(old, f.Map())
		w.metrics.maps.show(f.Map(), f.refusal() != nil)
		if changed && err == nil {
			warnDeprecated(log, f.Map())
		}
		switch {
		case err != nil:
			w.metrics.reloads.WithLabelValues("refused").Inc()
			log.Error("the new map is refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", err)
		case len(lost) > 0:
			w.metrics.reloads.WithLabelValues("loaded").Inc()
			log.Warn("map loaded, and entities are gone from it; their rows wait for about an hour and are then dead-lettered",
				"file", f.path, "map_version", f.Map().Version(), "old_version", old.Version(), "gone", len(lost), "entities", lost[:min(len(lost), 20)])
		case changed:
			w.metrics.reloads.WithLabelValues("loaded").Inc()
			log.Info("map loaded", "file", f.path, "map_version", f.Map().Version())
		case asked && f.refusal() != nil:
			log.Error("the map is still refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", f.refusal())
		case asked:
			log.Info("the map is unchanged", "file", f.path, "map_version", f.Map().Version())
		}
	}
}

// gone lists the entities of a map that another one does not have.
func gone(old, now *invalidation.Map) (list []string) {
	has := map[string]bool{}
	for _, entity := range now.Entities() {
		has[entity] = true
	}
	for _, entity := range old.Entities() {
		if !has[entity] {
			list = append(list, entity)
		}
	}
	return list
}
