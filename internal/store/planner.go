package store

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	quickScan     = time.Millisecond      // a scan from the table's start that takes longer is worth avoiding
	longestRTT    = 5 * time.Millisecond  // of a longer round trip the rest counts as scan, until a list says how long that takes
	headLife      = 50 * time.Millisecond // for which claims that begin at the head rely on a quick scan
	scanLife      = time.Second           // for which those that begin at the table's start do: it only says what they cost
	startShare    = 1000                  // lists from the start take at most one part in so many of the time
	shortestRest  = time.Second           // between two of them, at least
	longestRest   = time.Minute           // at most
	listShare     = 20                    // lists of another kind take at most one part in so many
	listRest      = 50 * time.Millisecond // between two lists of a kind, at least
	rescanLife    = 30 * time.Second      // for which slow-scan mode rescans what the head has passed: longer than any claim
	recentLife    = 2 * time.Second       // for which it does so often: longer than most statements
	maxStragglers = 500                   // spans
	maxListed     = 10_000                // rows of a list
	allIDs        = math.MaxUint64        // the last id of a list of all ids that were ever given out
)

// A planner decides where polls and claims of cache_outbox begin. A row that is deleted stays in the index until it is
// purged, and a backup's snapshot holds purge back for hours: a claim that begins at the table's start walks over a
// million of them in 330 ms, a plain scan in 45 ms (MySQL 9.7).
//
// Commits come in another order than ids, so below the head there may be rows again: late commits, rows of a worker
// that died, ids that an operator chose. As long as a scan from the table's start is quick, which is nearly always,
// each poll is one, and claims begin there too, unless a backlog is drained: then they begin at the head for as long as
// they may rely on the scan. When scans are slow they become rare (slow-scan mode), and the rows that existed below the
// head when it passed them, to READ UNCOMMITTED, are stragglers, which claims ask for by id. An id may also be given
// out before its row is inserted, and a row whose deletion is not committed yet may come back: so what the head has
// passed is rescanned, again and again, for half a minute. That also finds rows that others held when the head passed
// them.
//
// It has neither a database nor a clock: plan names a scan, the caller runs it and passes the answer to observe. Safe
// for concurrent use; an answer that another one has overtaken is ignored.
type planner struct {
	mu         sync.Mutex
	quick      time.Duration // quickScan, but for tests
	head       uint64        // where claims begin in slow-scan mode, and while a backlog is drained
	slow       bool          // slow-scan mode
	full       bool          // the last claim was full: more rows probably wait, beyond the head
	first      firstRow      // as of the last scan from the start
	scanned    time.Time     // when that ended
	suspicions int           // how many such scans in a row seemed slow; one may be the machine's fault
	rtt        time.Duration // when last measured
	stragglers []span        // ascending, below the head; only in slow-scan mode; never changed in place
	probed     time.Time     // when they were last listed
	skipped    bool          // the head has passed rows that were not settled, and nothing was rescanned since
	passages   []passage     // oldest first, one a second; only in slow-scan mode
	due        [scanKinds]time.Time
	version    int       // counts observations
	whole      time.Time // when the last poll or claim began that left no visible row out; only while scans are quick
}

// A passage records where the head was before it moved.
type passage struct {
	at   time.Time
	head uint64
}

// A scanKind is what a scan is for.
type scanKind int

const (
	scanFirst    scanKind = iota // the first row, to READ COMMITTED; the others list rows to READ UNCOMMITTED
	listStart                    // all below the head or the first row; how long it takes decides on slow-scan mode
	rescanAll                    // what the head passed within rescanLife, or since the last one
	rescanRecent                 // what it passed within recentLife
	probe                        // the stragglers
	scanKinds
)

// A scan is what a planner asks of the table.
type scan struct {
	kind    scanKind
	spans   []span // to list
	version int
}

// end returns the ID after a list.
func (s *scan) end() uint64 { return after(s.spans[len(s.spans)-1].last) }

// after returns the next ID, or id itself if that is the greatest: then claims that begin at the
// head still find its row.
func after(id uint64) uint64 { return max(id, id+1) }

// A firstRow is the table's first row, or none. ID 0 is an ID like any other.
type firstRow struct {
	found bool
	id    uint64
}

// An answer is what a scan found.
type answer struct {
	first     firstRow      // of scanFirst
	ids       []uint64      // of a list, ascending; one more than maxListed stands for any number
	took, rtt time.Duration // a list takes its time besides the round trip
	gaveUp    bool          // a list took too long and has no ids
}

// A request is a poll or a claim that is planned.
type request struct {
	began time.Time
	poll  bool
	force bool // a claim that leaves out nothing that it could get
}

// A start is where a poll or a claim begins.
type start struct {
	head        uint64   // 0: at the table's start
	stragglers  []span   // to ask for as well
	first       firstRow // none as well if it was not asked for
	mayHaveMore bool     // there may be rows that this leaves out
}

// isWhole reports whether a poll or a claim that begins there leaves out nothing that is committed: in slow-scan mode
// rows below the head may be.
func (s start) isWhole() bool { return s.head == 0 && !s.mayHaveMore }

// plan returns the scan that has to come before r, or else where r begins.
func (p *planner) plan(r request) (*scan, start) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slow {
		return p.planQuick(r)
	}
	if p.isDue(r, listStart) {
		return p.list(listStart, 0, p.head-1), start{}
	}
	if from := p.passedSince(time.Time{}); from < p.head && p.isDue(r, rescanAll) {
		return p.list(rescanAll, from, p.head-1), start{}
	}
	if from := p.passedSince(r.began.Add(-recentLife)); from < p.head && (p.isDue(r, rescanRecent) || r.force && p.skipped) {
		return p.list(rescanRecent, from, p.head-1), start{}
	}
	ask := len(p.stragglers) > 0 && (r.force || p.isDue(r, probe))
	switch probed := !p.probed.Before(r.began); {
	case ask && !probed && !r.poll:
		return &scan{probe, p.stragglers, p.version}, start{}
	case ask || probed:
		return nil, start{head: p.head, stragglers: p.stragglers, mayHaveMore: p.skipped}
	}
	return nil, start{head: p.head, mayHaveMore: p.skipped || len(p.stragglers) > 0}
}

// planQuick plans while scans from the table's start are quick.
func (p *planner) planQuick(r request) (*scan, start) {
	life := scanLife
	switch {
	case r.poll:
		life = 0
	case p.full || p.suspicions == 1:
		life = headLife
	}
	switch {
	case p.suspicions > 1 && p.isDue(r, listStart):
		last := uint64(allIDs)
		if p.first.found {
			last = max(p.first.id, 1) - 1 // nothing is before row 0
		}
		return p.list(listStart, 0, last), start{}
	case p.scanned.Before(r.began.Add(-life)):
		return &scan{kind: scanFirst, version: p.version}, start{}
	case p.full && !r.poll && !r.force:
		return nil, start{head: p.head, mayHaveMore: true}
	}
	return nil, start{first: p.first}
}

func (p *planner) list(kind scanKind, first, last uint64) *scan {
	return &scan{kind, []span{{first, last}}, p.version}
}

// isDue reports whether a kind of list was due when r began, so that r needs one of each kind at most.
func (p *planner) isDue(r request, kind scanKind) bool { return !r.began.Before(p.due[kind]) }

// passedSince is the lowest head since then.
func (p *planner) passedSince(then time.Time) uint64 {
	head := p.head
	for _, passed := range p.passages {
		if passed.at.Add(time.Second).After(then) {
			head = min(head, passed.head)
		}
	}
	return head
}

// observe records the answer to a scan that has just ended. One that failed has none, and is planned again.
func (p *planner) observe(now time.Time, s *scan, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.version != p.version {
		return
	}
	p.version++
	if s.kind == scanFirst {
		p.observeFirst(now, a)
		return
	}
	p.due[s.kind] = now.Add(max(listShare*a.took, listRest))
	switch s.kind {
	case listStart:
		p.due[listStart] = now.Add(min(max(startShare*a.took, shortestRest), longestRest))
		p.rtt = min(a.rtt, longestRTT)
		if a.took <= p.quick && !a.gaveUp {
			if p.slow {
				p.slow, p.stragglers, p.passages, p.skipped, p.due[listStart] = false, nil, nil, false, time.Time{}
			}
			return
		}
		if !p.slow { // nothing is known yet of what the head has passed
			p.slow, p.suspicions, p.head = true, 0, 0
			p.move(now, s.end())
		}
	case rescanAll:
		p.skipped, p.due[rescanRecent] = false, now.Add(listRest)
		p.passages = slices.DeleteFunc(p.passages, func(passed passage) bool {
			return !a.gaveUp && now.Sub(passed.at) > rescanLife+time.Second+a.took
		})
	case rescanRecent:
		p.skipped = false // though it may have given up: a claim must not ask for ever
	case probe:
		p.probed = now
	}
	if !a.gaveUp {
		p.record(s.spans[0].first, a.ids)
	}
}

func (p *planner) observeFirst(now time.Time, a answer) {
	p.first, p.scanned = a.first, now
	if a.took-p.rtt <= p.quick {
		p.suspicions, p.head = 0, a.first.id // 0 if there is no row
		return
	}
	p.suspicions++
	if a.first.found { // rather than at the table's start, which may be slow
		p.head = a.first.id
	}
}

// record replaces the stragglers from an id on. Excess ids hold the head back.
func (p *planner) record(from uint64, ids []uint64) {
	var list []span
	for _, s := range p.stragglers {
		if s.first < from {
			list = append(list, span{s.first, min(s.last, from-1)})
		}
	}
	for i, id := range ids {
		n := len(list)
		adjoins := n > 0 && list[n-1].last+1 == id
		if i == maxListed || !adjoins && n == maxStragglers {
			p.head = min(p.head, id)
			break
		}
		if adjoins {
			list[n-1].last = id
		} else {
			list = append(list, span{id, id})
		}
	}
	p.stragglers = list
}

// move moves the head and records passages.
func (p *planner) move(now time.Time, head uint64) {
	switch n := len(p.passages); {
	case head <= p.head:
	case n == 0 || now.Sub(p.passages[n-1].at) >= time.Second:
		p.passages = append(p.passages, passage{now, p.head})
	default: // it may have been moved back meanwhile
		p.passages[n-1].head = min(p.passages[n-1].head, p.head)
	}
	p.head = head
}

// sawAll records that nothing is left that was visible then: a poll found nothing, or a claim took all. The zero time
// says nothing.
func (p *planner) sawAll(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began.After(p.whole) {
		p.whole = began
	}
}

// lastSawAll is the last such time.
func (p *planner) lastSawAll() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole
}

// claimed records whether a claim was full.
func (p *planner) claimed(full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = full
}

// settled moves the head beyond rows of a claim, in ascending order, of which those in gone were settled.
func (p *planner) settled(now time.Time, rows []ClaimedRow, gone []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(gone)
	head, passed := p.head, uint64(0)
	for i := range rows {
		id := rows[i].ID
		if id < p.head {
			continue
		}
		if _, settled := slices.BinarySearch(gone, id); !settled {
			break
		}
		head, passed = after(id), passed+1
	}
	if !p.slow {
		p.head = head
		return
	}
	p.skipped = p.skipped || head-p.head > passed
	p.move(now, head)
}
