package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// A ListedTable is one of the tables whose rows wait for a worker.
type ListedTable int

// The tables of a Listing.
const (
	ListedHot    ListedTable = iota // rows of cache_outbox
	ListedDue                       // rows of cache_outbox_delayed that are due
	ListedSweeps                    // requests of cache_outbox_sweeps that were not swept once
	ListedTables                    // how many there are
)

// String returns the name of the table.
func (t ListedTable) String() string {
	return [...]string{"cache_outbox", "cache_outbox_delayed", "cache_outbox_sweeps"}[t]
}

// A ListedRow is a waiting row.
type ListedRow struct {
	ID    uint64
	Place uint64    // position in the list's order: the ID, or the due time
	At    time.Time // since when it waits, by the database's clock, according to the row
}

// A List contains the first rows of one table, at most MaxListing.
type List struct {
	Rows []ListedRow // in order of Place
	Last uint64      // Place of the last waiting row, listed or not; 0 without rows
}

// A Listing is the waiting rows in one plain, consistent read.
type Listing struct {
	Began time.Time // by this process's clock, before the read
	Now   time.Time // by the database's clock
	Lists [ListedTables]List
}

// MaxListing is the maximum number of rows per table in a Listing.
const MaxListing = 1000

// Contract for all: no lock (consistent reads); LIMIT rows of the index named. The read of sweeps
// skips the requests that wait for their second sweep. The last rows are read only if a list is
// full.
const (
	listingSQL = `(SELECT 0 AS listed, id, created_at AS at FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT ?)
UNION ALL (SELECT 1, id, due_at FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at LIMIT ?)
UNION ALL (SELECT 2, id, requested_at FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) WHERE swept_at IS NULL ORDER BY id LIMIT ?)
UNION ALL (SELECT 3, 0, UTC_TIMESTAMP(6))`
	lastRowSQL   = "SELECT id, entity FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT 1"
	lastSweepSQL = "SELECT id, kind AS entity FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT 1"
)

// List reads a Listing.
func (q *Queue) List(ctx context.Context) (l Listing, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.db.Config.StatementTimeout)
	defer cancel()
	l.Began = time.Now()
	var rows []struct {
		Table ListedTable `db:"listed"`
		ListedRow
	}
	if err = q.db.Side.SelectContext(ctx, &rows, listingSQL, MaxListing, MaxListing, MaxListing); err == nil {
		for _, r := range rows {
			switch r.Place = r.ID; r.Table {
			case ListedTables:
				l.Now = r.At
				continue
			case ListedDue:
				r.Place = uint64(max(r.At.UnixMicro(), 0))
			}
			list := &l.Lists[r.Table]
			list.Rows = append(list.Rows, r.ListedRow)
			list.Last = max(list.Last, r.Place)
		}
		err = q.listLast(ctx, &l)
	}
	if err != nil {
		return Listing{}, fmt.Errorf("list what waits: %w", err)
	}
	return l, nil
}

// listLast reads the last row of each table whose list is full. For delayed rows, it uses the
// current time instead, since no due row has a later one.
func (q *Queue) listLast(ctx context.Context, l *Listing) error {
	for table, query := range [...]string{ListedHot: lastRowSQL, ListedDue: "", ListedSweeps: lastSweepSQL} {
		list := &l.Lists[table]
		if len(list.Rows) < MaxListing {
			continue
		}
		if query == "" {
			list.Last = max(list.Last, uint64(l.Now.UnixMicro()))
			continue
		}
		last, err := session.FindRow[WaitingRow](ctx, q.db, query)
		if err != nil {
			return err
		}
		if last != nil { // otherwise all were deleted meanwhile
			list.Last = max(list.Last, last.ID)
		}
	}
	return nil
}

// Contract: an exclusive record lock on one of the listed rows until the transaction ends, which
// follows immediately. If other sessions have locked all of them, it takes no lock and does not wait (READ
// COMMITTED, primary key, SKIP LOCKED). Repeating it is harmless.
const tryRowsSQL = "SELECT entity FROM %s FORCE INDEX (PRIMARY) WHERE id IN (%s) LIMIT 1 FOR UPDATE SKIP LOCKED"

// AnyFree reports whether a claim could get at least one of these rows: it exists, and no session
// has it locked. The table is ListedHot or ListedDue.
func (q *Queue) AnyFree(ctx context.Context, table ListedTable, ids []uint64) (bool, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatUint(id, 10)
	}
	var free []string
	err := q.db.InTx(ctx, q.db.Side, func(ctx context.Context, tx *sqlx.Tx) error {
		return tx.SelectContext(ctx, &free, fmt.Sprintf(tryRowsSQL, table, strings.Join(texts, ",")))
	})
	return len(free) > 0, dberr.Wrap(err, fmt.Sprintf("try rows of %s", table))
}
