//go:build soak

package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Under load, every series that an alert or the dashboard queries exists, and no alert fires. Then
// each alert fires for its cause and ends with it, as Prometheus evaluates the metrics of workers,
// a reader and redis_exporter.
func TestEachAlertFires(t *testing.T) {
	t.Parallel()
	d := startDrill(t)
	d.healthy()
	for _, causes := range drills {
		d.play(causes)
	}
	if !d.comes(func() bool { return len(d.prometheus.firing()) == 0 }) {
		t.Fatalf("every cause is over, and there are still %v", d.prometheus.firing())
	}
	for _, causes := range lastDrills {
		d.play(causes)
	}
}

// healthy watches for a while: no alert fires or becomes pending. If a busy machine misses scrapes
// for a second, which is minutes in divided time, the period starts again.
func (d *drill) healthy() {
	d.t.Helper()
	for what, query := range queries(d.t) {
		for _, selector := range selectors(query) {
			if !d.comes(func() bool { return len(d.prometheus.query(selector)) > 0 }) {
				d.t.Fatalf("%s asks for %s, which nobody exports", what, selector)
			}
		}
	}
	const scrapes = 12
	began := time.Now()
	var fired []any // most recently
	if !d.comes(func() bool {
		during := fmt.Sprintf("[%dms]", time.Since(began).Milliseconds()+1)
		if found := d.prometheus.query(`count_over_time(ALERTS{alertstate="firing"}` + during + ")"); len(found) > 0 {
			fired, began = found, time.Now()
			return false
		}
		return len(d.prometheus.query(fmt.Sprintf("count_over_time(unstale_up%s) >= %d", during, scrapes))) == len(d.stops)
	}) {
		d.t.Fatalf("all is well, and there are no %d scrapes in a row without an alert: %v", scrapes, fired)
	}
	if !d.comes(func() bool {
		states := d.prometheus.states()
		for _, state := range states {
			if state != "inactive" {
				return false
			}
		}
		return len(states) == 2*len(alerts(d.t))
	}) {
		d.t.Fatalf("all is well, and alerts are %v", d.prometheus.states())
	}
	d.t.Logf("nothing fires for %.1f s", time.Since(began).Seconds())
}

// play causes faults, waits until all their alerts fire, and ends the faults. No alert fires
// before.
func (d *drill) play(causes []cause) {
	d.t.Helper()
	var wanted []string
	for _, c := range causes {
		wanted = append(wanted, c.alerts...)
	}
	firing := func() (list []string) {
		for _, name := range d.prometheus.firing() {
			if slices.Contains(wanted, name) {
				list = append(list, name)
			}
		}
		return list
	}
	if !d.comes(func() bool { return len(firing()) == 0 }) {
		d.t.Fatalf("before their cause these fire: %v", firing())
	}
	began := time.Now()
	var cures []func()
	for _, c := range causes {
		cures = append(cures, c.bring(d))
	}
	after := map[string]time.Duration{}
	if !d.comes(func() bool {
		for _, name := range firing() {
			if after[name] == 0 {
				after[name] = time.Since(began)
			}
		}
		return len(after) == len(wanted)
	}) {
		for _, c := range causes {
			for _, name := range c.alerts {
				if after[name] == 0 {
					d.t.Errorf("%s: %s does not fire", c.what, name)
				}
			}
		}
		d.t.FailNow()
	}
	for i, c := range causes {
		var fired []string
		for _, name := range c.alerts {
			fired = append(fired, fmt.Sprintf("%s after %.1f s", name, after[name].Seconds()))
		}
		d.t.Logf("%s: %s", c.what, strings.Join(fired, ", "))
		cures[i]()
	}
}

// comes waits until the state of Prometheus fulfills a condition.
func (d *drill) comes(condition func() bool) bool {
	d.t.Helper()
	return d.prometheus.process.comes(2*time.Minute, condition)
}
