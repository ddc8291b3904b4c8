package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// gapRest is how long a block stays open before an ID that has no batch. A batch with that ID may
// still appear, since the ID is assigned before the batch is visible. Meanwhile its session waits
// for a lock, at most 5 s in its pool. Most such IDs were rolled back.
const gapRest = time.Minute

// Contract for both: no lock. The first reads the newest block and the last batch of it, by primary
// key. The second reads at most blockLimits.batches batches by primary key, and the bodies of 16 of
// them.
const (
	newestBlockSQL = `SELECT h.last_id, EXISTS (SELECT 1 FROM cache_outbox_journal AS j WHERE j.id = h.last_id AND j.settled_at = h.settled_at) AS live
FROM cache_outbox_summaries AS h WHERE h.bucket = 254 ORDER BY h.last_id DESC LIMIT 1`
	openBatchesSQL = `SELECT COUNT(*) AS batches, COALESCE(SUM(row_count), 0) AS open_rows,
(SELECT COALESCE(SUM(bytes), 0) FROM (SELECT LENGTH(body) AS bytes FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT 16) AS b) AS bytes
FROM (SELECT row_count FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?) AS a`
)

// Contract for all: an exclusive lock on one row by primary key that is never written, or none.
// None of them waits for a lock, except makeTurnSQL, which runs only if the row is missing.
const (
	takeTurnSQL = "SELECT last_id FROM cache_outbox_summaries WHERE bucket = 255 AND last_id = 0 FOR UPDATE SKIP LOCKED"
	haveTurnSQL = "SELECT COUNT(*) FROM cache_outbox_summaries WHERE bucket = 255 AND last_id = 0"
	makeTurnSQL = "INSERT IGNORE INTO cache_outbox_summaries (bucket, last_id, after_id, settled_at, items) VALUES (255, 0, 0, UTC_TIMESTAMP(6), '')"
)

// Contract for both: no lock, LIMIT rows by primary key. The first runs READ UNCOMMITTED, so it
// also finds uncommitted batches. It selects a second column for the reason given at firstSQL.
const (
	anyBatchesSQL  = "SELECT id, worker FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?"
	nextBatchesSQL = `SELECT id, settled_at, row_count, TIMESTAMPDIFF(MICROSECOND, settled_at, UTC_TIMESTAMP(6)) AS age, body
FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?`
)

// Contract: appends rows; takes no lock that another insert waits for. Only the process that has
// the turn runs it.
const summarySQL = "INSERT INTO cache_outbox_summaries (bucket, last_id, after_id, settled_at, items) VALUES "

// Contract: exclusive locks on the rows of one block, by primary key. Repeating it deletes nothing.
const dropBlockSQL = "DELETE FROM cache_outbox_summaries WHERE last_id = ? AND last_id > 0 AND bucket IN (%s)"

// Summaries writes summaries of the journal, which let a search read little of the journal. Safe
// for concurrent use.
type Summaries struct {
	db     *session.Sessions
	blocks blockLimits
}

// NewSummaries returns the Summaries of an outbox.
func NewSummaries(db *session.Sessions) *Summaries { return &Summaries{db, usualBlocks} }

// Summarise summarizes the next block of the journal and returns how many batches it has. It
// returns 0 if there are not enough batches for a block yet, or if another process is summarizing.
// Only one process works at a time, in one transaction, so a crash leaves nothing behind. A block
// never gets more batches later: see block.take.
func (s *Summaries) Summarise(ctx context.Context) (batches int, err error) {
	if batches, err = s.summarise(ctx); err != nil {
		return 0, fmt.Errorf("summarize the journal: %w", err)
	}
	return batches, nil
}

// blockPatience bounds the time for a block, as a multiple of StatementTimeout, which bounds each
// statement. A block takes a few dozen statements. A block that times out starts over, so a small
// bound would fail forever on a slow server.
const blockPatience = 12

func (s *Summaries) summarise(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, blockPatience*s.db.Config.StatementTimeout)
	defer cancel()
	last, err := s.lastBlock(ctx)
	if err != nil {
		return 0, err
	}
	var open struct {
		Batches, Bytes int
		Rows           int `db:"open_rows"`
	}
	if err := s.db.Side.GetContext(ctx, &open, openBatchesSQL, last, last, s.blocks.batches); err != nil {
		return 0, err
	}
	if open.Batches < s.blocks.batches && open.Rows < s.blocks.rows && open.Bytes < s.blocks.bytes {
		return 0, nil
	}
	tx, err := s.takeTurn(ctx)
	if tx == nil || err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if now, err := s.lastBlock(ctx); err != nil || now != last {
		return 0, err // another process has had the turn since
	}
	b, err := s.readBlock(ctx, tx, last)
	if err != nil || !b.full {
		return 0, err
	}
	if err := b.write(ctx, tx); err != nil {
		return 0, err
	}
	return b.batches, tx.Commit()
}

// lastBlock returns the last ID of the newest block, or 0. It drops blocks that do not end with the
// batch that was summarized: retention has deleted their batches, or an operator has emptied the
// journal, whose IDs may then start over.
func (s *Summaries) lastBlock(ctx context.Context) (uint64, error) {
	for {
		var newest struct {
			LastID uint64 `db:"last_id"`
			Live   bool
		}
		err := s.db.Side.GetContext(ctx, &newest, newestBlockSQL)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return 0, nil
		case err != nil || newest.Live:
			return newest.LastID, err
		}
		if err := s.dropBlock(ctx, newest.LastID); err != nil {
			return 0, err
		}
	}
}

// allBuckets lists the buckets of a block's rows. MySQL finds them by primary key only if the
// statement names them.
var allBuckets = func() string {
	var list []string
	for bucket := range patternBucket + 1 {
		list = append(list, fmt.Sprint(bucket))
	}
	return strings.Join(append(list, fmt.Sprint(headBucket)), ",")
}()

func (s *Summaries) dropBlock(ctx context.Context, last uint64) error {
	_, err := s.db.Side.ExecContext(ctx, fmt.Sprintf(dropBlockSQL, allBuckets), last)
	return err
}

// takeTurn begins a transaction that has the turn, or returns nil if another process has it. The
// server ends the turn with the connection, and after ten seconds if the process is frozen.
func (s *Summaries) takeTurn(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.tryTurn(ctx)
	if tx != nil || err != nil {
		return tx, err
	}
	// Either another process has the turn, or its row does not exist yet.
	var have int
	if err := s.db.Side.GetContext(ctx, &have, haveTurnSQL); have > 0 || err != nil {
		return nil, err
	}
	if _, err := s.db.Side.ExecContext(ctx, makeTurnSQL); err != nil {
		return nil, err
	}
	return s.tryTurn(ctx)
}

func (s *Summaries) tryTurn(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.db.Side.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	var row uint64
	if err := tx.QueryRowContext(ctx, takeTurnSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err has the cause; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return tx, nil
}

// A block is a block that is being read.
type block struct {
	limits  blockLimits
	after   uint64 // it has the batches after this ID
	last    uint64
	settled time.Time // of the last batch
	batches int
	rows    int
	bytes   int
	items   []item
	damaged []item // batches that could not be unpacked
	full    bool
}

// readBlock reads the batches after an ID until the block is full or must not continue: see take.
func (s *Summaries) readBlock(ctx context.Context, tx *sql.Tx, after uint64) (*block, error) {
	any, err := s.anyBatches(ctx, after) // must run before the other reads
	if err != nil {
		return nil, err
	}
	b := &block{limits: s.blocks, after: after, last: after}
	// Each page is twice as large as the previous one. The rest of a page is wasted when the block
	// ends.
	for page := 8; ; page *= 2 {
		page = min(page, s.blocks.batches-b.batches)
		n, err := b.read(ctx, tx, any, page)
		if err != nil {
			return nil, err
		}
		b.full = b.full || b.batches >= s.blocks.batches || b.isLarge()
		if n < page || b.full {
			return b, nil
		}
	}
}

// read reads a page and returns how many of its batches the block has taken.
func (b *block) read(ctx context.Context, tx *sql.Tx, any *anyBatches, page int) (taken int, err error) {
	rows, err := tx.QueryContext(ctx, nextBatchesSQL, b.last, page)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var id uint64
		var settled time.Time
		var rowCount int
		var age int64
		var body []byte
		if err := rows.Scan(&id, &settled, &rowCount, &age, &body); err != nil {
			return 0, err
		}
		if !b.take(id, time.Duration(age)*time.Microsecond, any) {
			break
		}
		b.add(id, settled, rowCount, body)
		taken++
	}
	return taken, rows.Err()
}

// anyBatches are the next batches, committed or not.
type anyBatches struct {
	ids  []uint64 // IDs that the block has not passed yet
	upTo uint64   // there may be more after this ID
}

func (s *Summaries) anyBatches(ctx context.Context, after uint64) (*anyBatches, error) {
	tx, err := s.db.Side.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	var rows []struct {
		ID     uint64
		Worker string
	}
	if err := tx.SelectContext(ctx, &rows, anyBatchesSQL, after, s.blocks.batches); err != nil {
		return nil, err
	}
	any := &anyBatches{upTo: math.MaxUint64}
	for _, row := range rows {
		any.ids = append(any.ids, row.ID)
	}
	if len(rows) == s.blocks.batches {
		any.upTo = any.ids[len(rows)-1]
	}
	return any, nil
}

// take reports whether the block may continue with a committed batch. It may not if a batch with a
// lower ID can still be committed: a batch that was seen uncommitted just before, or one with an ID
// that has no batch (see gapRest).
func (b *block) take(id uint64, age time.Duration, any *anyBatches) bool {
	if b.isLarge() {
		return false
	}
	if id != b.last+1 {
		for len(any.ids) > 0 && any.ids[0] <= b.last {
			any.ids = any.ids[1:]
		}
		if len(any.ids) > 0 && any.ids[0] < id || id > any.upTo || age < gapRest {
			return false
		}
	}
	if id-b.after <= b.limits.spread {
		return true
	}
	if b.batches > 0 { // the IDs have a large gap: the block ends before it
		b.full = true
		return false
	}
	b.after = id - 1 // the gap between the two blocks is searched, and is empty
	return true
}

// isLarge reports whether the block must not have more batches, no matter how many it has.
func (b *block) isLarge() bool {
	return b.rows >= b.limits.rows || b.bytes >= b.limits.bytes || len(b.items) >= b.limits.items
}

func (b *block) add(id uint64, settled time.Time, rows int, body []byte) {
	b.last, b.settled = id, settled
	b.batches++
	b.rows += rows
	b.bytes += len(body)
	number := id - b.after
	entries, err := DecodeEntries(body)
	if err != nil {
		b.damaged = append(b.damaged, newItem(name{headBucket, 0}, number))
		return
	}
	from := len(b.items)
	for i := range entries {
		entries[i].eachName(func(n name) { b.items = append(b.items, newItem(n, number)) })
	}
	own := b.items[from:] // rows of a batch have many names in common
	slices.Sort(own)
	b.items = b.items[:from+len(slices.Compact(own))]
}

// summaryBytes is the approximate size limit of a statement.
const summaryBytes = 256 << 10

// write writes the summary: a row for each bucket that has items, and one for the block.
func (b *block) write(ctx context.Context, tx *sql.Tx) error {
	slices.Sort(b.items)
	var args []any
	bytes := 0
	flush := func() error {
		if len(args) == 0 {
			return nil
		}
		const values = "(?,?,?,?,FROM_BASE64(?))"
		_, err := tx.ExecContext(ctx, summarySQL+strings.Repeat(values+",", len(args)/5-1)+values, args...)
		args, bytes = nil, 0
		return err
	}
	put := func(bucket uint8, items []item) error {
		text := base64.StdEncoding.EncodeToString(appendItems(nil, items))
		args = append(args, bucket, b.last, b.after, b.settled, text)
		if bytes += len(text); bytes < summaryBytes {
			return nil
		}
		return flush()
	}
	for rest := b.items; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].bucket() == rest[0].bucket() {
			n++
		}
		if err := put(rest[0].bucket(), rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if err := put(headBucket, b.damaged); err != nil {
		return err
	}
	return flush()
}

// Contract: no lock. It reads one row per block and the last batch of the block, both by primary
// key.
const deadBlocksSQL = `SELECT h.last_id FROM cache_outbox_summaries AS h
LEFT JOIN cache_outbox_journal AS j ON j.id = h.last_id AND j.settled_at = h.settled_at
WHERE h.bucket = 254 AND j.id IS NULL ORDER BY h.last_id`

// ExpireSummaries drops the blocks whose last batch is gone. Retention deletes the last batch of a
// block after the others. Batches that are left of a dropped block are searched without it.
// Repeating it, or running it in several workers, is harmless.
func (s *Summaries) ExpireSummaries(ctx context.Context) error {
	if err := s.expireSummaries(ctx); err != nil {
		return fmt.Errorf("expire summaries: %w", err)
	}
	return nil
}

func (s *Summaries) expireSummaries(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.db.Config.StatementTimeout)
	defer cancel()
	var dead []uint64
	if err := s.db.Side.SelectContext(ctx, &dead, deadBlocksSQL); err != nil {
		return err
	}
	for _, last := range dead {
		if err := s.dropBlock(ctx, last); err != nil {
			return err
		}
	}
	return nil
}
