package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// The number of statements and round trips of a batch does not depend on the machine, on its number
// of rows, or on the size of the map.
func TestCountsOfABatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rows, entities, unlinks int }{
		{rows: 5, entities: 1, unlinks: 1},
		{rows: 10, entities: 1, unlinks: 1},
		{rows: 1000, entities: 1000, unlinks: 4}, // of 500 names each, with the leases
	} {
		t.Run(fmt.Sprintf("%d rows", c.rows), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, exactMap(c.entities))
			w.onOwnMySQL("--general-log=1", "--log-output=TABLE", "--innodb-stats-auto-recalc=0")
			roundTrips := &roundTrips{}
			r := w.worker(worker.Config{BatchRows: c.rows}, roundTrips.of(w.keyspace(5*time.Second)))
			const counted = 20
			// where little else is in the table MySQL may refuse the DELETE of spans: see outbox
			const batches = counted + 5
			for range batches {
				w.enqueue(exactRows(c.rows)...)
			}
			w.clearLog()
			if got := r.drain(t); got.Unlinked != batches*c.rows || got.Messages != batches {
				t.Fatalf("%+v", got)
			}
			checkStatements(t, w.claiming(), counted)
			w.checkPrepared(5)
			roundTrips.check(t, batches, c.unlinks)
		})
	}
}

// batchStatements are all statements that a batch sends to MySQL, in execution order.
var batchStatements = []string{"START TRANSACTION", "claim", "journal", "delete", "count", "COMMIT"}

// checkStatements also checks that scans from the start of the table are rare: while a backlog is
// drained, claims rely on one for 50 ms.
func checkStatements(t *testing.T, log []statement, batches int) {
	t.Helper()
	const headLife = 50 * time.Millisecond
	var sent []string
	var scanned time.Time
	for _, s := range log {
		if len(sent) == batches*len(batchStatements) {
			break
		}
		if s.name != "scan" {
			sent = append(sent, s.name)
			continue
		}
		if s.at.Sub(scanned) < headLife {
			t.Errorf("a scan from the table's start follows one after %v", s.at.Sub(scanned))
		}
		scanned = s.at
	}
	if !slices.Equal(sent, slices.Repeat(batchStatements, batches)) {
		t.Errorf("the claiming session sent %q", sent)
	}
}

// checkPrepared checks that few statements are prepared, and once per session. When the server has
// seen the arguments it may prepare one again.
func (w *world) checkPrepared(statements int) {
	w.t.Helper()
	var n int
	err := w.db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Prepare'
AND thread_id IN (SELECT thread_id FROM mysql.general_log WHERE command_type = 'Execute')`).Scan(&n)
	if err != nil {
		w.t.Fatal(err)
	}
	if n == 0 || n > 3*statements {
		w.t.Errorf("%d statements were prepared", n)
	}
}

// An empty poll is one statement, without a transaction.
func TestCountsOfAPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, exactMap(1))
	w.onOwnMySQL("--general-log=1", "--log-output=TABLE")
	r := w.worker(worker.Config{})
	r.drain(t)
	w.clearLog()
	const polls = 100
	for range polls {
		if found, err := r.store.Queue.Waiting(t.Context()); found || err != nil {
			t.Fatal(found, err)
		}
	}
	for _, session := range w.statements() {
		// slow scans on a busy machine make the planner list rows in another session
		if indexOf(session, "scan") < 0 {
			continue
		}
		if sent := len(session); sent < polls || sent > polls+20 {
			t.Errorf("%d polls were %d statements", polls, sent)
		}
		if indexOf(session, "START TRANSACTION") >= 0 {
			t.Errorf("an empty poll began a transaction: %v", session)
		}
	}
}

// From the claim to the commit, a row costs a fixed number of allocations, nine of them in reading
// its columns. Not parallel, since allocations are counted for the whole process.
func TestAllocationsFromClaimToCommit(t *testing.T) {
	const rows, batches, perRow = 1000, 10, 15
	w := newWorld(t, exactMap(1))
	r := w.worker(worker.Config{BatchRows: rows})
	for range batches {
		w.enqueue(exactRows(rows)...)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := r.drain(t); got.Unlinked != batches*rows {
		t.Fatalf("%+v", got)
	}
	runtime.ReadMemStats(&after)
	if got := float64(after.Mallocs-before.Mallocs) / (rows * batches); got > perRow {
		t.Errorf("%.2f allocations a row, want %d at most", got, perRow)
	}
}

// A statement is one that the server was sent; a long one goes by a name.
type statement struct {
	at   time.Time
	name string
}

// claiming returns the statements of the session that claims, from its first transaction on.
func (w *world) claiming() (list []statement) {
	w.t.Helper()
	for _, session := range w.statements() {
		if indexOf(session, "claim") >= 0 {
			list = append(list, session[indexOf(session, "START TRANSACTION"):]...)
		}
	}
	return list
}

// indexOf returns where the first statement with a name is, or -1.
func indexOf(list []statement, name string) int {
	return slices.IndexFunc(list, func(s statement) bool { return s.name == name })
}

// clearLog empties the general log, which has every statement that the server was sent.
func (w *world) clearLog() {
	w.t.Helper()
	w.exec("TRUNCATE mysql.general_log")
}

// statements returns those in the general log, by session.
func (w *world) statements() map[int64][]statement {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), `SELECT thread_id, event_time, LEFT(argument, 200), RIGHT(argument, 40)
FROM mysql.general_log WHERE command_type IN ('Query', 'Execute') AND thread_id <> CONNECTION_ID()`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	sessions := map[int64][]statement{}
	for rows.Next() {
		var session int64
		var s statement
		var head, tail sql.RawBytes
		if err := rows.Scan(&session, &s.at, &head, &tail); err != nil {
			w.t.Fatal(err)
		}
		s.name = statementName(string(head), string(tail))
		sessions[session] = append(sessions[session], s)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return sessions
}

func statementName(head, tail string) string {
	switch {
	case strings.HasSuffix(tail, "FOR UPDATE SKIP LOCKED") && !strings.Contains(head, "cache_outbox_summaries"):
		return "claim"
	case strings.HasPrefix(head, "INSERT INTO cache_outbox_journal"):
		return "journal"
	case strings.HasPrefix(head, "INSERT INTO cache_outbox_minutes"):
		return "count"
	case strings.Contains(head, "DELETE") && (strings.Contains(head, "FROM cache_outbox ") || strings.Contains(head, "JOIN cache_outbox ")):
		return "delete"
	case strings.HasPrefix(head, "SELECT id FROM cache_outbox "):
		return "scan"
	}
	return head
}

// roundTrips are the round trips of a Keyspace, each as the names of its commands. It is a hook of
// the client.
type roundTrips struct {
	mu  sync.Mutex
	all []string
}

func (t *roundTrips) of(k *keyspace.Keyspace) func(worker.Redis) worker.Redis {
	k.Nodes.Client().AddHook(t)
	return func(worker.Redis) worker.Redis { return worker.NewRedis(k) }
}

func (t *roundTrips) add(commands ...redis.Cmder) {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, strings.Join(names, " "))
}

func (t *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		t.add(c)
		return next(ctx, c)
	}
}

func (t *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		t.add(commands...)
		return next(ctx, commands)
	}
}

// check expects two round trips per batch: the UNLINKs with the beacon and the time, and then the
// message.
func (t *roundTrips) check(test *testing.T, batches, unlinks int) {
	test.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	want := slices.Repeat([]string{"get get get get get get time" + strings.Repeat(" unlink", unlinks) + " set set set", "publish"}, batches)
	first := slices.Index(t.all, want[0])
	if first < 0 || !slices.Equal(t.all[first:], want) {
		test.Errorf("the round trips were %q", t.all)
	}
}

// exactMap has that many entities with one exact key each.
func exactMap(entities int) string {
	text := "version: 1\npublish: {channel: \"cache:invalidate\"}\nentities:\n"
	for i := range entities {
		text += fmt.Sprintf("  coupon%d: {keys: [\"shop:coupon%d:{id}\"]}\n", i, i)
	}
	return text
}

// exactRows are rows of one exact key each.
func exactRows(n int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i, id := range texts(n, "code-%d") {
		invs[i] = outbox.Invalidation{Entity: "coupon0", ID: id}
	}
	return invs
}
