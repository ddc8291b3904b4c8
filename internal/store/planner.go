package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

const (
	// a scan from the table's start that takes longer is worth avoiding
	quickScan = time.Millisecond
	// The rest of a longer round trip counts as scan, until a list measures the round trip.
	longestRTT = 5 * time.Millisecond
	// how long claims that begin at the head rely on a quick scan
	headLife = 50 * time.Millisecond
	// how long claims that begin at the table's start rely on one; it only shows their cost
	scanLife = time.Second
	// lists from the start take at most 1/startShare of the time
	startShare   = 1000
	shortestRest = time.Second           // minimum pause between two of them
	longestRest  = time.Minute           // maximum pause
	listShare    = 20                    // other lists take at most 1/listShare of the time
	listRest     = 50 * time.Millisecond // minimum pause between two lists of a kind
	// how long slow-scan mode rescans IDs that the head has passed: longer than any claim
	rescanLife    = 30 * time.Second
	recentLife    = 2 * time.Second // how long it does so often: longer than most statements
	maxStragglers = 500             // spans
	maxListed     = 10_000          // rows of a list
	// the last ID for a list of all assigned IDs
	allIDs = math.MaxUint64
)

// A planner decides where polls and claims of cache_outbox begin. A deleted row stays in the index
// until it is purged, and the snapshot of a backup blocks purge for hours. A claim that begins at
// the table's start passes a million such rows in 330 ms, a plain scan in 45 ms (MySQL 9.7).
//
// Rows do not commit in the order of their IDs, so rows may appear below the head again: late
// commits, rows of a worker that crashed, IDs that an operator chose. The planner has two modes:
//
//   - If a scan from the table's start is quick, as it nearly always is, each poll is such a scan.
//     Claims begin there too, unless a backlog is drained: then they begin at the head for as long
//     as they may rely on the last scan.
//   - If scans are slow, they become rare (slow-scan mode). The rows that READ UNCOMMITTED shows
//     below the head as it passes them are stragglers, and claims ask for them by ID. An ID may be
//     assigned before its row is inserted, and a row may come back if its deletion rolls back. The
//     planner therefore rescans the IDs that the head has passed, repeatedly, for half a minute.
//     That also finds rows that others held when the head passed them.
//
// The planner uses neither a database nor a clock: plan returns a scan, the caller runs it and
// passes the answer to observe. Safe for concurrent use. An answer is ignored if another one was
// observed since its scan was planned.
type planner struct {
	mu      sync.Mutex
	quick   time.Duration // quickScan, except in tests
	head    uint64        // where claims begin in slow-scan mode, and while a backlog is drained
	slow    bool          // slow-scan mode
	full    bool          // the last claim was full: more rows probably wait, beyond the head
	first   firstRow      // as of the last scan from the start
	scanned time.Time     // when that ended
	// how many such scans in a row seemed slow; the machine may cause one
	suspicions int
	rtt        time.Duration // when last measured
	// ascending, below the head; only in slow-scan mode; never changed in place
	stragglers []span
	probed     time.Time // when they were last listed
	// the head has passed rows that were not settled, and no rescan followed
	skipped  bool
	passages []passage // oldest first, one per second; only in slow-scan mode
	due      [scanKinds]time.Time
	version  int // counts observations
	// start of the last poll or claim that left no visible row out; only while scans are quick
	whole time.Time
}

// A passage records where the head was before it moved.
type passage struct {
	at   time.Time
	head uint64
}

// A scanKind is the purpose of a scan.
type scanKind int

const (
	// the first row, READ COMMITTED; the others list rows READ UNCOMMITTED
	scanFirst scanKind = iota
	// all IDs below the head or the first row; its duration decides on slow-scan mode
	listStart
	rescanAll    // the IDs that the head passed within rescanLife, or since the last one
	rescanRecent // the IDs that it passed within recentLife
	probe        // the stragglers
	scanKinds
)

// A scan is a query of the table that a planner asks for.
type scan struct {
	kind    scanKind
	spans   []span // to list
	version int
}

// afterLast returns the ID after a list.
func (s *scan) afterLast() uint64 { return after(s.spans[len(s.spans)-1].last) }

// after returns the next ID, or id itself if it is the greatest. Claims that begin at the head then
// still find its row.
func after(id uint64) uint64 { return max(id, id+1) }

// A firstRow is the table's first row, or none. ID 0 is an ID like any other.
type firstRow struct {
	found bool
	id    uint64
}

// An answer is the result of a scan.
type answer struct {
	first     firstRow      // of scanFirst
	ids       []uint64      // of a list, ascending; maxListed+1 means any greater number
	took, rtt time.Duration // took of a list excludes the round trip
	gaveUp    bool          // a list took too long and has no IDs
}

// A request is a poll or a claim that is planned.
type request struct {
	began time.Time
	poll  bool
	force bool // a claim that must not leave out any row that it could get
}

// A start is where a poll or a claim begins.
type start struct {
	head        uint64   // 0: at the table's start
	stragglers  []span   // claims ask for them in addition
	first       firstRow // also none if it was not queried
	mayHaveMore bool     // this start may leave out rows
}

// isWhole reports whether a poll or a claim that begins at s leaves out no committed row. In
// slow-scan mode it may leave out rows below the head.
func (s start) isWhole() bool { return s.head == 0 && !s.mayHaveMore }

// plan returns the scan that must run before r, or else where r begins.
func (p *planner) plan(r request) (*scan, start) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slow {
		return p.planQuick(r)
	}
	if p.isDue(r, listStart) {
		return p.listing(listStart, 0, p.head-1), start{}
	}
	if from := p.passedSince(time.Time{}); from < p.head && p.isDue(r, rescanAll) {
		return p.listing(rescanAll, from, p.head-1), start{}
	}
	if from := p.passedSince(r.began.Add(-recentLife)); from < p.head && (p.isDue(r, rescanRecent) || r.force && p.skipped) {
		return p.listing(rescanRecent, from, p.head-1), start{}
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
		return p.listing(listStart, 0, last), start{}
	case p.scanned.Before(r.began.Add(-life)):
		return &scan{kind: scanFirst, version: p.version}, start{}
	case p.full && !r.poll && !r.force:
		return nil, start{head: p.head, mayHaveMore: true}
	}
	return nil, start{first: p.first}
}

func (p *planner) listing(kind scanKind, first, last uint64) *scan {
	return &scan{kind, []span{{first, last}}, p.version}
}

// isDue reports whether a kind of list was due when r began. Since r's start decides, r needs at
// most one list of each kind.
func (p *planner) isDue(r request, kind scanKind) bool { return !r.began.Before(p.due[kind]) }

// passedSince returns the lowest head since then.
func (p *planner) passedSince(then time.Time) uint64 {
	head := p.head
	for _, passed := range p.passages {
		if passed.at.Add(time.Second).After(then) {
			head = min(head, passed.head)
		}
	}
	return head
}

// observe records the answer to a scan that has just ended. A failed scan has no answer and is
// planned again.
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
		if !p.slow { // the IDs that the head has passed are not listed yet
			p.slow, p.suspicions, p.head = true, 0, 0
			p.move(now, s.afterLast())
		}
	case rescanAll:
		p.skipped, p.due[rescanRecent] = false, now.Add(listRest)
		p.passages = slices.DeleteFunc(p.passages, func(passed passage) bool {
			return !a.gaveUp && now.Sub(passed.at) > rescanLife+time.Second+a.took
		})
	case rescanRecent:
		p.skipped = false // even if it gave up: a claim must not repeat it forever
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
	if a.first.found { // not the table's start, which may be slow
		p.head = a.first.id
	}
}

// record replaces the stragglers from an ID on. Excess IDs hold the head back.
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

// sawAll records that a poll or a claim that began then left no visible row: the poll found none,
// or the claim took all. The zero time is ignored.
func (p *planner) sawAll(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began.After(p.whole) {
		p.whole = began
	}
}

// lastSawAll returns the latest time passed to sawAll.
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

// settled moves the head beyond the settled rows at the beginning of a claim's rows, which are in
// ascending order. gone lists the settled rows.
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

// poll returns the query of a poll that does not begin at the table's start.
func (s start) poll() (query string, args []any) {
	args = []any{s.head}
	if len(s.stragglers) == 0 {
		return headSQL, args
	}
	for _, list := range s.stragglers {
		for id := list.first; id <= list.last; id++ {
			if args = append(args, id); len(args) > 1+fewStragglers {
				return headSQL + " OR " + fmt.Sprintf(existsSQL, spanned(s.stragglers)), args[:1]
			}
		}
	}
	for len(args) < 1+fewStragglers {
		args = append(args, args[1])
	}
	return stragglersSQL, args
}

// Contract for all: no lock. They read at most one row, or the listed rows up to a limit. MySQL 9.7
// plans a query for only the id as a scan from the table's start, regardless of its bound, so all
// bounded queries select another column.
const (
	firstSQL  = "SELECT id FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	existsSQL = "EXISTS (SELECT entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s)"
	listSQL   = "SELECT id, entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s ORDER BY id LIMIT %d"
)

// The polls of slow-scan mode that are prepared: without stragglers, and with up to fewStragglers.
// MariaDB 10.11 reads on behind the end of a range, through every deleted row, but not behind an
// equality.
var (
	headSQL       = "SELECT " + fmt.Sprintf(existsSQL, "id >= ?")
	stragglersSQL = headSQL + " OR " + fmt.Sprintf(existsSQL, "id IN (?"+strings.Repeat(",?", fewStragglers-1)+")")
)

const fewStragglers = 8

// findStart runs the scans that r needs and returns where r begins.
func (q *Queue) findStart(ctx context.Context, r request) (start, error) {
	for {
		next, at := q.planner.plan(r)
		if next == nil {
			return at, nil
		}
		if err := q.scan(ctx, next); err != nil {
			return start{}, err
		}
	}
}

// scan runs a scan and passes the result to the planner.
func (q *Queue) scan(ctx context.Context, next *scan) (err error) {
	var a answer
	if next.kind == scanFirst {
		began := time.Now()
		err = q.db.Claims.QueryRowContext(ctx, firstSQL).Scan(&a.first.id)
		a.took, a.first.found = time.Since(began), err == nil
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
	} else {
		a, err = q.listRows(ctx, next.spans)
	}
	if err == nil {
		q.planner.observe(time.Now(), next, a)
	}
	return err
}

// listRows lists rows, committed or not. It gives up after half of the time that ctx leaves, so the
// other half remains for the caller's next statement. It replaces the end of all IDs by the last
// assigned ID, at most the second greatest: no head can be beyond the greatest.
func (q *Queue) listRows(ctx context.Context, spans []span) (a answer, err error) {
	if spans[0].last == allIDs {
		next, err := q.db.NextID(ctx, hot.name)
		if err != nil {
			return answer{}, err
		}
		spans[0].last = min(next-1, allIDs-1)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(2 * q.db.Config.StatementTimeout)
	}
	limited, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	began := time.Now()
	tx, err := q.db.Side.BeginTxx(limited, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	if err == nil {
		var rows []WaitingRow
		began = time.Now()
		err = tx.SelectContext(limited, &rows, fmt.Sprintf(listSQL, spanned(spans), maxListed+1))
		ended := time.Now()
		_ = tx.Rollback() // it has only read
		a.rtt = time.Since(ended)
		a.took = max(ended.Sub(began)-a.rtt, 0)
		a.ids = session.AppendIDs(nil, rows, func(r WaitingRow) uint64 { return r.ID })
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return answer{took: time.Since(began), gaveUp: true}, nil
	}
	return a, err
}

// A span is a range of IDs without a gap, from first to last.
type span struct{ first, last uint64 }

// maxSpans is the maximum number of spans in one statement. With more, the IDs are so scattered
// that ranges gain nothing.
const maxSpans = 100

// spans returns the spans of IDs in ascending order, or nil if there are more than maxSpans.
func spans(ids []uint64) []span { return spansUpTo(ids, maxSpans) }

func spansUpTo(ids []uint64, most int) []span {
	var list []span
	for _, id := range ids {
		if n := len(list); n > 0 && list[n-1].last+1 == id {
			list[n-1].last = id
			continue
		}
		if len(list) == most {
			return nil
		}
		list = append(list, span{id, id})
	}
	return list
}

// spanned returns a condition on id for the spans. A range that ends with the span would make the
// server read the row after it and wait for that row's lock, which another session may hold. Each
// range therefore ends one ID earlier, where the next row is the span's last one, and the last row
// is matched separately.
func spanned(list []span) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteString(" OR ")
		}
		if s.first < s.last {
			b.WriteString("id BETWEEN " + strconv.FormatUint(s.first, 10) + " AND " + strconv.FormatUint(s.last-1, 10) + " OR ")
		}
		b.WriteString("id = " + strconv.FormatUint(s.last, 10))
	}
	return b.String()
}

// Waiting reports, with one plain statement, whether cache_outbox has a row. It includes rows that
// another worker holds, which the next claim does not get.
func (q *Queue) Waiting(ctx context.Context) (found bool, err error) {
	began := time.Now()
	at, err := q.findStart(ctx, request{began: began, poll: true})
	if err == nil && at.isWhole() && !at.first.found {
		q.planner.sawAll(began)
	}
	if err == nil && at.head > 0 {
		query, args := at.poll()
		err = q.db.Claims.QueryRowContext(ctx, query, args...).Scan(&found)
	}
	return err == nil && (found || at.first.found), dberr.Wrap(err, "poll outbox")
}

// Contract: no lock (a consistent read), one row of the index named, the pause by primary key.
const pollStateSQL = `SELECT EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6)),
EXISTS (SELECT 1 FROM cache_outbox_control WHERE name = 'pause' AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))), UTC_TIMESTAMP(6)`

// A PollState is the state that changes slowly, read in one plain statement.
type PollState struct {
	Due    bool // a delayed row is due
	Paused bool // see Pause
}

// PollState reads a PollState and the database's clock.
func (q *Queue) PollState(ctx context.Context) (state PollState, err error) {
	var now time.Time
	sent := time.Now()
	if err := q.db.Claims.QueryRowContext(ctx, pollStateSQL).Scan(&state.Due, &state.Paused, &now); err != nil {
		return PollState{}, fmt.Errorf("poll outbox: %w", err)
	}
	q.clock.observe(sent, now)
	return state, nil
}
