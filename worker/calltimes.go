package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

func newCallTimes(r *prometheus.Registry, name, help string, kinds []string) callTimes {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "unstale", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15),
	}, []string{"kind"})
	r.MustRegister(vec)
	times := callTimes{}
	for _, kind := range kinds {
		times[kind] = vec.WithLabelValues(kind)
	}
	return times
}

// begin begins a call of a kind, which ends with the function that it returns.
func (c callTimes) begin(kind string) (end func()) {
	began := time.Now()
	return func() { c[kind].Observe(time.Since(began).Seconds()) }
}
