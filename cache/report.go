package cache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// reportInterval is how long a report waits for further messages.
	reportInterval = time.Second
	// maxReports is how many reports wait: each is of the messages of one epoch without a gap.
	maxReports = 64
	// reportPause is how long no report is sent after a refusal: each one creates an entry in the
	// ACL log of Redis.
	reportPause = time.Minute
)

var errReportPause = errors.New("redis has refused recent reports")

// A reporter records in Redis which messages this process has received. The receiver never waits
// for it: a message that does not fit is dropped and counted. A nil reporter does nothing.
type reporter struct {
	process string
	redis   *backend
	reads   *readCounts
	total   atomic.Uint64 // messages that were dropped
	refusal refusal       // used by report alone

	mu      sync.Mutex
	waiting []protocol.Report
	dropped uint64 // messages, since the latest report that Redis took
}

func newReporter(config Config, b *backend, reads *readCounts) *reporter {
	return &reporter{process: config.Memory.Process, redis: b, reads: reads,
		refusal: refusal{logger: config.Logger, subject: "evictions", rule: "+xadd %W~" + protocol.ReportKey}}
}

// heard records a message whose keys were evicted. A heartbeat belongs to the report of the message
// before it, and a message without a number to none.
func (r *reporter) heard(m *protocol.Message) {
	if r == nil || m.Epoch == "" || m.Seq == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		w := &r.waiting[i]
		if w.Epoch == m.Epoch && w.First <= m.Seq && m.Seq <= w.Last+1 {
			w.Last = max(w.Last, m.Seq)
			return
		}
	}
	switch {
	case len(m.Keys)+len(m.Patterns) == 0:
	case len(r.waiting) == maxReports:
		r.drop(1)
	default:
		r.waiting = append(r.waiting, protocol.Report{Process: r.process, Epoch: m.Epoch, First: m.Seq, Last: m.Seq})
	}
}

// drop counts messages that no report contains. The caller holds mu.
func (r *reporter) drop(messages uint64) {
	r.dropped += messages
	r.total.Add(messages)
}

// report sends what waits, and counts what Redis did not take.
func (r *reporter) report(ctx context.Context) {
	r.mu.Lock()
	reports := r.waiting
	r.waiting = nil
	if len(reports) > 0 {
		reports[0].Dropped, r.dropped = r.dropped, 0
	}
	r.mu.Unlock()
	if len(reports) == 0 {
		return
	}
	versions := strings.Join(r.reads.versions(), ",")
	for i := range reports {
		reports[i].Reads = versions
	}
	faults := r.sendReports(ctx, reports)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, fault := range faults {
		if fault != nil {
			r.dropped += reports[i].Dropped // which is in the total already
			r.drop(reports[i].Last - reports[i].First + 1)
		}
	}
}

// sendReports sends one pipeline. It returns the error of each report, nil for those that Redis
// accepted.
func (r *reporter) sendReports(ctx context.Context, reports []protocol.Report) []error {
	if r.refusal.lasts() {
		return slices.Repeat([]error{errReportPause}, len(reports))
	}
	faults, err := send(ctx, r.redis, "report", func(ctx context.Context) ([]error, error) {
		cmds, err := r.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, report := range reports {
				p.XAdd(ctx, &redis.XAddArgs{Stream: protocol.ReportKey, MaxLen: protocol.MaxReports, Approx: true, Values: report.Fields()})
			}
			return nil
		})
		faults := make([]error, len(cmds))
		for i, cmd := range cmds {
			faults[i] = cmd.Err()
		}
		return faults, err
	})
	if err != nil && !slices.ContainsFunc(faults, func(fault error) bool { return fault != nil }) {
		faults = slices.Repeat([]error{err}, len(reports)) // nothing is known about any
	}
	r.refusal.logOnce(err)
	return faults
}

// dropCount returns how many messages were dropped since New.
func (r *reporter) dropCount() uint64 {
	if r == nil {
		return 0
	}
	return r.total.Load()
}
