package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const faultsPage = "docs/faults.md"

// A cause is what alerts are there for.
type cause struct {
	what   string
	bring  func(*drill) (cure func())
	alerts []string
}

// drills are causes that are brought about at the same time, one list after the other. There is no alert whose cause cannot be
// brought about: each is here. Where rows have to be old, they are given an old time.
var drills = [][]cause{
	{
		{"connections to redis come and go", (*drill).flap, []string{"UnstaleOutagesRepeat"}},
	},
	{
		{"an operator pauses all workers", (*drill).pause, []string{"UnstalePaused", "UnstaleHeartbeatsWithheld", "UnstaleReaderUnhealthy"}},
		{"some workers have another map", (*drill).changeOneMap, []string{"UnstaleMapsDiffer"}},
		{"more is written than carried", (*drill).backlog, []string{"UnstaleLate"}},
		{"redis has no room", (*drill).fillRedis, []string{"RedisEvictions"}},
		{"a trigger of capture is dropped", (*drill).dropTrigger, []string{"UnstaleCaptureDrift"}},
		{"clients ask for keys that nobody stores", (*drill).askForNothing, []string{"RedisHitRatioLow"}},
		{"redis forgets locks that are held", (*drill).loseLocks, []string{"UnstaleLocksLost"}},
		{"a guarded transaction goes on without its lock", (*drill).stayInSection, []string{"UnstaleLockGuardOpen"}},
		{"maxclients is reached again and again", (*drill).connectTooOften, []string{"RedisConnectionErrors"}},
	},
	{
		{"a transaction holds rows", (*drill).holdRows, []string{"UnstaleStalled", "UnstaleOverdue"}},
		{"nobody compares the triggers", (*drill).compareNoMore, []string{"UnstaleCaptureUnchecked"}},
		{"an insert chooses the last ID", (*drill).useUpIDs, []string{"UnstaleIDsRunOut"}},
		{"another database has the same names", (*drill).shareNames, []string{"UnstaleDatabasesConflict"}},
		{"the map does not know an entity", (*drill).unknownEntity, []string{"UnstaleRowsDead"}},
		{"the worker's account may not touch keys", (*drill).foreignKeys, []string{"UnstaleRowsDelayed"}},
		{"what should be an index set is a text", (*drill).notASet, []string{"UnstaleSweepsRefused"}},
		{"a map has a fault", (*drill).breakMap, []string{"UnstaleMapRefused"}},
		{"readers ask for ever new keys", (*drill).readNewKeys, []string{"UnstaleReaderHitRatioLow"}},
		{"loaders fail", (*drill).failLoaders, []string{"UnstaleReaderLoadsFail"}},
		{"maxmemory is turned off, and every other value is deleted", (*drill).fragment, []string{"RedisWithoutLimit", "RedisFragmentation"}},
	},
	{
		{"whoever may sweep does nothing", (*drill).holdSweepLock, []string{"UnstaleSweepsStuck"}},
		{"a table is gone", (*drill).hideTable, []string{"UnstaleGaugesUnread"}},
		{"commands are slow", (*drill).slowCommands, []string{"RedisLatency", "RedisSlowLog"}},
		{"a master of the cluster dies", (*drill).killMaster, []string{"UnstaleMastersAway"}},
	},
	{
		{"the worker's account may not scan", (*drill).forbidScan, []string{"UnstaleSweepsFail"}},
		{"redis dies", (*drill).killOther, []string{"RedisDown"}},
		{"the redis of locks and limits dies", (*drill).killState, []string{"UnstaleLocksFail", "UnstaleLimitsUnsure"}},
	},
	{
		{"a COMMIT of a worker does not return", (*drill).hangCommits, []string{"UnstaleStalled"}},
	},
	{
		{"redis dies, and rows wait", (*drill).killCache, []string{"UnstaleOutage", "UnstaleRowsWait"}},
	},
	{
		{"redis comes back with an old snapshot, part of the journal is damaged, and another worker that is frozen holds the rest", (*drill).goBack,
			[]string{"UnstaleHealed", "UnstaleHealingTakesLong", "UnstaleJournalDamaged"}},
	},
}

// lastDrills end all workers, and what they do is not undone.
var lastDrills = [][]cause{
	{
		{"no worker runs", (*drill).stopWorkers, []string{"UnstaleNoWorker"}},
		{"maxclients is reached for good, and the exporter is refused too", (*drill).connectForGood, []string{"RedisDown"}},
	},
	{
		{"redis came back with an old snapshot while no worker ran, and a new one has healed it when it is first scraped", (*drill).startWorker,
			[]string{"UnstaleHealed"}},
	},
}

// Under load every series is there that an alert or the dashboard asks for, and no alert fires. Then each fires for its cause,
// as Prometheus sees it in what workers, a reader and redis_exporter say, and ends with it.
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

// Each alert is drilled, and docs/faults.md says by what.
func TestDrillsAreComplete(t *testing.T) {
	t.Parallel()
	drilled := map[string]bool{}
	var told [][]string
	for _, causes := range slices.Concat(drills, lastDrills) {
		for _, c := range causes {
			told = append(told, []string{c.what, strings.Join(c.alerts, ", ")})
			for _, name := range c.alerts {
				drilled[name] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !drilled[a.Alert] {
			t.Errorf("%s is not drilled", a.Alert)
		}
		delete(drilled, a.Alert)
	}
	for name := range drilled {
		t.Errorf("%s is drilled, and there is no such alert", name)
	}
	if got := table(t, faultsPage, "cause"); !slices.EqualFunc(got, told, slices.Equal) {
		t.Errorf("%s has %q\nwanted %q", faultsPage, got, told)
	}
}

// healthy looks on for a while: nothing fires, and nothing is about to. A machine that is so busy that nobody scrapes it for a
// second, which is minutes in haste, makes the while begin again.
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
	var fired []any // at last
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

// play brings causes about, waits until all their alerts fire, and ends the causes. None fires before.
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

// comes waits for what Prometheus must come to say.
func (d *drill) comes(condition func() bool) bool {
	d.t.Helper()
	return d.prometheus.process.comes(evaluateInterval/2, 2*time.Minute, condition)
}
