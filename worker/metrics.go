package worker

import (
	"context"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// metrics are the metrics of the worker in a separate registry. Names and labels are an interface:
// dashboards and alerts rely on them. Safe for concurrent use.
type metrics struct {
	registry *prometheus.Registry

	maps  mapGauges
	state maintenance.StateMetrics
	sweep maintenance.SweepMetrics
	mysql callTimes
	redis callTimes

	keys, messages, heartbeats, wakes    prometheus.Counter
	lockRows                             prometheus.Counter
	heals, healedBatches, healedKeys     prometheus.Counter
	invalidations, spotKeys, spotRepairs prometheus.Counter

	rows         *prometheus.CounterVec // by outcome
	deadLettered *prometheus.CounterVec // by reason
	delays       *prometheus.CounterVec // by reason
	reloads      *prometheus.CounterVec // by result
	inTime       *prometheus.CounterVec // by limit
	shadows      *prometheus.CounterVec // by result
	spotChecks   *prometheus.CounterVec // by result

	waiting, oldest, delayed, overdue, held, behind prometheus.Gauge
	sweepQueue, sweepRefused, oldestSweep           prometheus.Gauge
	heartbeat, receivers, lastSettle                prometheus.Gauge
	damaged, healing, healingLeft                   prometheus.Gauge

	dead       *prometheus.GaugeVec // by reason
	idsLeft    *prometheus.GaugeVec // by table
	conflicts  *prometheus.GaugeVec // by kind
	spotDenied *prometheus.GaugeVec // by part

	batchSeconds, batchRows         prometheus.Histogram
	insertToUnlink, visibleToUnlink *lateHistogram
}

// newMetrics returns the metrics of a worker, with the map in use, and whether its file says
// something else.
func newMetrics(inUse *invalidation.Map, differs bool) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{registry: r}
	into := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return into.NewCounter(prometheus.CounterOpts{Namespace: "unstale", Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return into.NewCounterVec(prometheus.CounterOpts{Namespace: "unstale", Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return into.NewGauge(prometheus.GaugeOpts{Namespace: "unstale", Name: name, Help: help})
	}
	gauges := func(name, help, label string) *prometheus.GaugeVec {
		return into.NewGaugeVec(prometheus.GaugeOpts{Namespace: "unstale", Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return into.NewHistogram(prometheus.HistogramOpts{Namespace: "unstale", Name: name, Help: help, Buckets: buckets})
	}
	m.rows = counters("rows_total", "Rows carried, by outcome: unlinked, delayed, dead, repeated.", "outcome")
	m.deadLettered = counters("rows_dead_total", "Rows that this process moved to the dead letters, by reason.", "reason")
	m.delays = counters("rows_delayed_total", "Rows that this process delayed after a failure, by reason.", "reason")
	m.keys = counter("keys_unlinked_total", "Distinct exact keys unlinked, whether they existed or not.")
	m.messages = counter("messages_published_total", "Messages published about keys.")
	m.heartbeats = counter("heartbeats_total", "Heartbeats published: readers may keep values in memory.")
	m.sweep.Swept = counter("sweeps_total", "Patterns and index sets swept.")
	m.sweep.Keys = counter("sweep_keys_unlinked_total", "Keys that sweeps found and unlinked.")
	m.state.Contention = counter("contention_total", "Deadlocks, lock wait timeouts and, in a cluster, rows that another node changed first (1213, 1205, 3101), which made a transaction start again.")
	m.wakes = counter("wakes_total", "Wake-ups heard.")
	m.lockRows = counter("lock_rows_deleted_total", "Rows of cache_outbox_locks that this process deleted, since nobody had acquired their locks for longer than the retention.")
	m.state.Outages = counters("outages_total", "Outages entered, by state.", "state")
	m.heals = counter("heals_total", "Times that the worker healed, since Redis had lost unlinks that it had acknowledged.")
	m.healedBatches = counter("healed_batches_total", "Batches of the journal that were unlinked again.")
	m.healedKeys = counter("healed_keys_total", "Keys that were unlinked again.")
	m.reloads = counters("map_reloads_total", "Changed map files, by result: loaded, refused.", "result")
	m.state.Up = gauge("up", "1 while mysql and redis answer, 0 during an outage.")
	m.state.Paused = gauge("paused", "1 while an operator has all workers paused.")
	m.heartbeat = gauge("heartbeat", "1 while heartbeats are sent, 0 while they are withheld, so that readers keep nothing in memory.")
	m.state.Away = gauge("redis_masters_away", "Masters of a Redis Cluster that do not answer; rows with keys there wait.")
	m.state.Subscribed = gauge("wake_subscribed", "1 while the worker is subscribed to the channel of wake-ups.")
	m.waiting = gauge("rows_waiting", "Rows in cache_outbox; counts end at 10001.")
	m.oldest = gauge("oldest_age_seconds", "Age of the oldest of the first hundred rows in cache_outbox, at least; no less than since this process saw the first one.")
	m.delayed = gauge("rows_delayed", "Rows in cache_outbox_delayed; counts end at 10001.")
	m.overdue = gauge("overdue_seconds", "How long the first delayed row has been due.")
	m.sweepQueue = gauge("sweeps_waiting", "Patterns and index sets that wait; counts end at 10001.")
	m.damaged = gauge("journal_damaged", "Batches of the journal that cannot be read and were set aside; counts end at 10001.")
	m.sweepRefused = gauge("sweeps_refused", "Those among them that Redis has refused, each tried again every minute; counts end at 10001.")
	m.state.Sweeping = gauge("sweeping", "1 while sweeps work or none waits, 0 while they fail as a whole.")
	m.state.Sweeping.Set(1)
	m.dead = gauges("rows_dead", "Dead letters now, by reason.", "reason")
	m.idsLeft = gauges("ids_left", "IDs that a table has left for new rows; at 0 every insert fails. Below 2^63 an insert has chosen a high one.", "table")
	m.conflicts = gauges("database_conflicts", "Conflicts of databases on this Redis, by kind: restored (the database is older than Redis), id (two have one ID).", "kind")
	m.observeConflicts(nil)
	m.batchSeconds = histogram("batch_seconds", "A batch, from the claim to the commit.",
		prometheus.ExponentialBuckets(0.0005, 2, 14))
	m.batchRows = histogram("batch_rows", "Rows of a batch.", []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 10000})
	m.sweep.Seconds = histogram("sweep_seconds", "A scan of the keyspace, or a batch of index sets.", prometheus.ExponentialBuckets(0.001, 4, 10))
	m.insertToUnlink = newLateHistogram("insert_to_unlink_seconds",
		"From a row's created_at, by the database's clock, to the UNLINK of its keys: the application's transaction included.")
	m.visibleToUnlink = newLateHistogram("visible_to_unlink_seconds",
		"From the last look that did not find a row, or its created_at, to the UNLINK of its keys: no less than since its commit.")
	r.MustRegister(m.insertToUnlink, m.visibleToUnlink)
	m.invalidations = counter("invalidations_total", "Rows with a key or tag that were settled, and rows that became dead letters; no repeats and scheduled rows.")
	m.inTime = counters("invalidations_in_time_total", "Those whose keys were unlinked within 100ms, 1s or 10s of becoming visible, at most.", "within")
	m.shadows = counters("shadow_reads_total", "Reports of readers that a cached value differs from its loader, by what this worker found: confirmed, known, gone, unknown.", "result")
	m.lastSettle = gauge("last_settle_timestamp_seconds", "When this process last settled a batch, in Unix time; 0 before the first.")
	m.receivers = gauge("message_receivers", "Subscribers that Redis counted at the last message or heartbeat; in a Cluster those at one node.")
	m.held = gauge("oldest_held_age_seconds", "Age of the oldest row that another session has locked for longer than a worker would, 0 without one.")
	m.behind = gauge("behind_seconds", "Age of the latest moment by which all that was committed is known to be invalidated; rows that failed and wait do not count.")
	m.state.Stalled = gauges("stalled", "1 while rows make no progress, by reason: commit (a COMMIT does not return), held (another session has them locked), behind (no worker claims them).", "reason")
	m.oldestSweep = gauge("sweep_oldest_age_seconds", "Age of the oldest request in cache_outbox_sweeps.")
	m.sweep.Done = gauges("sweep_done", "How far this worker's sweep is: names scanned, or sets taken; 0 while none is under way.", "kind")
	m.sweep.Size = gauges("sweep_size", "How many names or sets there are to do, roughly; 0 while none is under way.", "kind")
	m.healing = gauge("healing", "1 while this worker unlinks again what Redis has lost.")
	m.healingLeft = gauge("healing_batches_left", "Batches that may still have to be unlinked again, at most.")
	m.spotChecks = counters("spot_checks_total", "Keys of settled batches that were checked, by result: stale, fresh (no earlier lease survived), absent, unknown.", "result")
	m.spotKeys = counter("spot_check_keys_total", "Keys that spot checks looked at; each check looks up to three times.")
	m.spotRepairs = counter("spot_check_repairs_total", "Stale entries that spot checks unlinked.")
	m.spotDenied = gauges("spot_check_denied", "1 while the account of Redis lacks the permissions for a part of the spot checks: look, repair.", "part")
	m.mysql = newCallTimes(into, "mysql_call_seconds", "Calls to MySQL, failed ones too, by kind.", mysqlCalls)
	m.sweep.Call = func() (end func()) { return m.mysql.timeCall(callSweeps) }
	m.redis = newCallTimes(into, "redis_call_seconds", "Calls to Redis, failed ones too, by kind.", redisCalls)
	byEntity := func(name, help string) *entityCounts {
		return &entityCounts{vec: counters(name, help+", by entity of the map in use; unknown for all others.", "entity")}
	}
	m.maps = mapGauges{
		info:       gauges("map_info", "1 for the version of the map in use.", "version"),
		reads:      gauges("reads_info", "1 for the fingerprint of the reads of the map in use, which readers export as unstale_cache_reads_info.", "version"),
		differs:    gauge("map_file_differs", "1 while the map's file says something else than the map in use: it is refused, or cannot be read."),
		entities:   byEntity("entity_rows_total", "Rows carried"),
		dropped:    byEntity("templates_dropped_total", "Templates that made nothing of settled rows, which did not give an optional name"),
		undeclared: byEntity("params_undeclared_total", "Parameters of settled rows that the map does not declare for their entity"),
	}
	m.zero()
	m.maps.show(inUse, differs)
	return m
}

// zero makes every label known from the start: an alert on a rate never misses the first event.
func (m *metrics) zero() {
	makeKnown(m.rows, "unlinked", "delayed", "dead", "repeated")
	makeKnown(m.deadLettered, invalidation.Reasons()...)
	makeKnown(m.dead, invalidation.Reasons()...)
	makeKnown(m.delays, store.DelayedReasons()...)
	makeKnown(m.state.Outages, maintenance.OutageStates()...)
	makeKnown(m.state.Stalled, maintenance.StalledCommit, maintenance.StalledHeld, maintenance.StalledBehind)
	for _, limit := range store.Limits {
		makeKnown(m.inTime, limit.String())
	}
	makeKnown(m.shadows, maintenance.ShadowResults...)
	makeKnown(m.sweep.Done, store.SweepPattern, store.SweepSet)
	makeKnown(m.sweep.Size, store.SweepPattern, store.SweepSet)
	makeKnown(m.spotChecks, maintenance.Results...)
	makeKnown(m.spotDenied, "look", "repair")
	makeKnown(m.reloads, "loaded", "refused")
}

// makeKnown makes series of these values of the label.
func makeKnown[L ~string, M any](vec interface{ WithLabelValues(...string) M }, labels ...L) {
	for _, label := range labels {
		vec.WithLabelValues(string(label))
	}
}

// batchDone counts a batch that claimed rows.
func (m *metrics) batchDone(r Result, settled []store.Settlement) {
	for i := range settled {
		m.countRows(&settled[i])
	}
	m.rows.WithLabelValues("unlinked").Add(float64(r.Unlinked))
	m.rows.WithLabelValues("delayed").Add(float64(r.Delayed))
	m.rows.WithLabelValues("dead").Add(float64(r.Dead))
	m.rows.WithLabelValues("repeated").Add(float64(r.Repeats))
	m.keys.Add(float64(r.Keys))
	m.messages.Add(float64(r.Messages))
	m.batchSeconds.Observe(r.Took.Seconds())
	m.batchRows.Observe(float64(r.Claimed))
	m.lastSettle.SetToCurrentTime()
}

func (m *metrics) countRows(s *store.Settlement) {
	m.inTime.WithLabelValues("100ms").Add(float64(s.Counts.Within100ms))
	m.inTime.WithLabelValues("1s").Add(float64(s.Counts.Within1s))
	m.inTime.WithLabelValues("10s").Add(float64(s.Counts.Within10s))
	m.invalidations.Add(float64(s.Counts.Rows + s.Counts.Dead))
	for _, d := range s.Dead {
		m.deadLettered.WithLabelValues(d.Reason).Inc()
	}
	for _, d := range s.Delays {
		m.delays.WithLabelValues(d.Reason).Inc()
	}
}

// hotTable is where rows wait.
const hotTable = "cache_outbox"

// observe sets the gauges about tables. Those of a table that could not be read are NaN: an old
// figure would look like a new one.
func (m *metrics) observe(s store.Status, failed map[string]error) {
	from := func(table string, value float64) float64 {
		if failed[table] != nil {
			return math.NaN()
		}
		return value
	}
	m.waiting.Set(from(hotTable, float64(s.Waiting)))
	m.oldest.Set(from(hotTable, s.OldestAge.Seconds()))
	m.delayed.Set(from("cache_outbox_delayed", float64(s.Delayed)))
	m.overdue.Set(from("cache_outbox_delayed", s.Overdue.Seconds()))
	m.sweepQueue.Set(from("cache_outbox_sweeps", float64(s.Sweeps)))
	m.sweepRefused.Set(from("cache_outbox_sweeps", float64(s.SweepsRefused)))
	m.oldestSweep.Set(from("cache_outbox_sweeps", s.OldestSweep.Seconds()))
	m.damaged.Set(from("cache_outbox_journal", float64(s.Damaged)))
	for _, reason := range invalidation.Reasons() {
		m.dead.WithLabelValues(string(reason)).Set(from("cache_outbox_dead", float64(s.Dead[string(reason)])))
	}
	for _, table := range store.NumberedTables {
		m.idsLeft.WithLabelValues(table).Set(from(table, float64(s.IDsLeft[table])))
	}
}

// observeConflicts sets the gauge of conflicts.
func (m *metrics) observeConflicts(list []store.Conflict) {
	for _, kind := range store.ConflictKinds {
		n := 0
		for _, c := range list {
			if c.Kind == kind {
				n++
			}
		}
		m.conflicts.WithLabelValues(string(kind)).Set(float64(n))
	}
}

const (
	lateUnit    = time.Millisecond // the first bucket's bound; each is twice the previous one
	lateBuckets = 20               // up to nine minutes; one more takes the rest
)

// A lateHistogram counts rows by their delay. It is locked once per batch, since there are hundreds
// of thousands of rows per second. Two histograms of the client library, which lock for each row,
// would double the cost of all metrics of a batch. It is a prometheus.Collector.
type lateHistogram struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	counts [lateBuckets + 1]uint64
	sum    float64 // seconds
}

func newLateHistogram(name, help string) *lateHistogram {
	return &lateHistogram{desc: prometheus.NewDesc(prometheus.BuildFQName("unstale", "", name), help, nil, nil)}
}

// observe counts a row. The caller has locked it; d is not negative.
func (h *lateHistogram) observe(d time.Duration) {
	n := 0
	if d > lateUnit {
		n = min(bits.Len64(uint64((d-1)/lateUnit)), lateBuckets)
	}
	h.counts[n]++
	h.sum += d.Seconds()
}

// Describe implements prometheus.Collector.
func (h *lateHistogram) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect implements prometheus.Collector.
func (h *lateHistogram) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	counts, sum := h.counts, h.sum
	h.mu.Unlock()
	buckets, total := make(map[float64]uint64, lateBuckets), uint64(0)
	for i, n := range counts {
		total += n
		if i < lateBuckets {
			buckets[math.Ldexp(lateUnit.Seconds(), i)] = total
		}
	}
	to <- prometheus.MustNewConstHistogram(h.desc, total, sum, buckets)
}

// late measures how late the keys of the rows of a settled claim were unlinked. It leaves out
// repeats, which are late on purpose, and scheduled rows.
//
// The commit time of a row is unknown. The row became visible after it was inserted. If a scan of
// the whole table had not found it, it became visible after that scan. The later of both times is
// an upper bound for how long its keys were stale.
func (m *metrics) late(ageOf func(*store.ClaimedRow, time.Time) time.Duration, c *store.Claim, done []uint64, unlinked time.Time) {
	m.insertToUnlink.mu.Lock()
	defer m.insertToUnlink.mu.Unlock()
	m.visibleToUnlink.mu.Lock()
	defer m.visibleToUnlink.mu.Unlock()
	for i := range c.Rows {
		r := &c.Rows[i]
		if len(done) == 0 {
			return
		}
		if r.ID != done[0] { // in the order of the rows, without those at fault
			continue
		}
		done = done[1:]
		if r.Repeated || r.FirstID == 0 {
			continue
		}
		age := ageOf(r, unlinked)
		m.insertToUnlink.observe(age)
		if c.IsDelayed() {
			continue
		}
		m.visibleToUnlink.observe(visible(c, age, unlinked))
	}
}

// healMetrics implements maintenance.HealMetrics.
type healMetrics struct{ m *metrics }

func (h healMetrics) Positions() (end func()) { return h.m.mysql.timeCall(callPositions) }

func (h healMetrics) Call() (end func()) { return h.m.mysql.timeCall(callHeal) }

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

// The kinds of calls to MySQL that are measured, some of several statements, and those to Redis.
const (
	callPoll      = "poll"      // whether rows wait, are due, or all workers are paused
	callClaim     = "claim"     // from the scan to the last row read
	callLookup    = "lookup"    // one query of the map
	callSettle    = "settle"    // deletes, the journal, COMMIT
	callPositions = "positions" // of the journal, to be compared with the beacons
	callHeal      = "heal"      // a claim of batches of the journal, or its end
	callSweeps    = "sweeps"    // what waits, and what came of it
	callGauges    = "gauges"    // all that metrics ask

	callBeacon    = "beacon"
	callCompare   = "compare" // beacons of all workers
	callUnlink    = "unlink"  // of a batch or a part of it, in all nodes
	callPublish   = "publish"
	callHeartbeat = "heartbeat"
	callLook      = "look" // of the spot checks, in all nodes
)

var (
	mysqlCalls = []string{callPoll, callClaim, callLookup, callSettle, callPositions, callHeal, callSweeps, callGauges}
	redisCalls = []string{callBeacon, callCompare, callUnlink, callPublish, callHeartbeat, callLook}
)

// callTimes are how long calls to one server took, failed ones too, by kind.
type callTimes map[string]prometheus.Observer

func newCallTimes(into promauto.Factory, name, help string, kinds []string) callTimes {
	vec := into.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "unstale", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15),
	}, []string{"kind"})
	times := callTimes{}
	for _, kind := range kinds {
		times[kind] = vec.WithLabelValues(kind)
	}
	return times
}

// timeCall begins a call of a kind, which ends with the function that it returns.
func (c callTimes) timeCall(kind string) (end func()) {
	began := time.Now()
	return func() { c[kind].Observe(time.Since(began).Seconds()) }
}

// A measuredRedis measures calls to Redis, and records the number of subscribers of messages. Scans
// and index sets, which take many calls, are in sweep_seconds.
type measuredRedis struct {
	maintenance.Redis
	times   callTimes
	metrics *metrics
}

func (c measuredRedis) CheckBeacon(ctx context.Context) (keyspace.Position, error) {
	defer c.times.timeCall(callBeacon)()
	return c.Redis.CheckBeacon(ctx)
}

func (c measuredRedis) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	defer c.times.timeCall(callCompare)()
	return c.Redis.Survived(ctx, epochs)
}

func (c measuredRedis) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	defer c.times.timeCall(callUnlink)()
	return c.Redis.Unlink(ctx, targets)
}

func (c measuredRedis) Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error) {
	defer c.times.timeCall(callPublish)()
	done, err := c.Redis.Publish(ctx, channel, f, news)
	c.metrics.receivers.Set(float64(c.Redis.Receivers()))
	return done, err
}

func (c measuredRedis) Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error) {
	defer c.times.timeCall(callLook)()
	return c.Redis.Look(ctx, asked)
}

func (c measuredRedis) Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error {
	defer c.times.timeCall(callHeartbeat)()
	err := c.Redis.Beat(ctx, channel, moved, withheld, asOf)
	c.metrics.receivers.Set(float64(c.Redis.Receivers()))
	return err
}

// unknownEntity is the label of rows whose entity is not in the map: text of an application must
// not become a label.
const unknownEntity = "unknown"

// entityCounts count by entity: those of the map in use, each from the start, unknown ones, and
// reserved ones. Safe for concurrent use.
type entityCounts struct {
	vec *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]prometheus.Counter
}

// setEntities keeps the series of a map's entities, and no others.
func (e *entityCounts) setEntities(m *invalidation.Map) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[string]prometheus.Counter{unknownEntity: e.vec.WithLabelValues(unknownEntity)}
	for _, entity := range m.Entities() {
		known[entity] = e.vec.WithLabelValues(entity)
	}
	for entity, counter := range e.known {
		if invalidation.IsReserved(entity) {
			known[entity] = counter
		} else if known[entity] == nil {
			e.vec.DeleteLabelValues(entity)
		}
	}
	e.known = known
}

// addRows counts rows.
func (e *entityCounts) addRows(rows []store.ClaimedRow) {
	for i := 0; i < len(rows); {
		entity, first := rows[i].Entity, i
		for i < len(rows) && rows[i].Entity == entity { // mostly of one transaction
			i++
		}
		e.addCount(entity, i-first)
	}
}

// addCount adds n. A batch that was expanded by the map before may have entities that are gone
// since.
func (e *entityCounts) addCount(entity string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	counter := e.known[entity]
	switch {
	case counter != nil:
	case invalidation.IsReserved(entity): // few rows, so there is no series before the first
		counter = e.vec.WithLabelValues(entity)
		e.known[entity] = counter
	default:
		counter = e.known[unknownEntity]
	}
	counter.Add(float64(n))
}
