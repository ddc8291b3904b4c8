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
)

// gapRest is for how long a block stays open behind an id that no batch has. The id may belong to a batch that is on its
// way: it is given out before the batch is there for anybody to see. Between the two a session waits for a lock at most
// (of its pool, 5 s). Most ids that nobody has were rolled back.
const gapRest = time.Minute

// Contract for both: no lock. The first reads the newest block and the batch that it ends with, by primary key; the
// second looks at most at blockLimits.batches batches by primary key, and at the bodies of 16 of them.
const (
	newestBlockSQL = `SELECT h.last_id, EXISTS (SELECT 1 FROM cache_outbox_journal AS j WHERE j.id = h.last_id AND j.settled_at = h.settled_at) AS live
FROM cache_outbox_summaries AS h WHERE h.bucket = 254 ORDER BY h.last_id DESC LIMIT 1`
	openBatchesSQL = `SELECT COUNT(*) AS batches, COALESCE(SUM(row_count), 0) AS open_rows,
(SELECT COALESCE(SUM(bytes), 0) FROM (SELECT LENGTH(body) AS bytes FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT 16) AS b) AS bytes
FROM (SELECT row_count FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?) AS a`
)

// Contract for all: an exclusive lock on one row by primary key that is never written, or none; never waits, but for
// makeTurnSQL, which runs only where the row is missing.
const (
	takeTurnSQL = "SELECT last_id FROM cache_outbox_summaries WHERE bucket = 255 AND last_id = 0 FOR UPDATE SKIP LOCKED"
	haveTurnSQL = "SELECT COUNT(*) FROM cache_outbox_summaries WHERE bucket = 255 AND last_id = 0"
	makeTurnSQL = "INSERT IGNORE INTO cache_outbox_summaries (bucket, last_id, after_id, settled_at, items) VALUES (255, 0, 0, UTC_TIMESTAMP(6), '')"
)

// Contract for both: no lock, LIMIT rows by primary key. The first, to READ UNCOMMITTED, also finds batches that are not
// committed; it asks for a column beside the id, see firstSQL.
const (
	anyBatchesSQL  = "SELECT id, worker FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?"
	nextBatchesSQL = `SELECT id, settled_at, row_count, TIMESTAMPDIFF(MICROSECOND, settled_at, UTC_TIMESTAMP(6)) AS age, body
FROM cache_outbox_journal FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?`
)

// Contract: appends rows; takes no lock that another insert waits for. Whoever has the turn is the only one who does.
const summarySQL = "INSERT INTO cache_outbox_summaries (bucket, last_id, after_id, settled_at, items) VALUES "

// Contract: exclusive locks on the rows of one block, by primary key; repeating it deletes nothing.
const dropBlockSQL = "DELETE FROM cache_outbox_summaries WHERE last_id = ? AND last_id > 0 AND bucket IN (%s)"

// Summarise summarises the next block of the journal, and returns how many batches it has: 0 if there are not enough for
// a block yet, or another process is at it. Only one process does it at a time, in one transaction, so that one which
// dies leaves nothing behind. A block has all of its batches for good: see block.take.
func (s *Store) Summarise(ctx context.Context) (batches int, err error) {
	if batches, err = s.summarise(ctx); err != nil {
		return 0, fmt.Errorf("summarise the journal: %w", err)
	}
	return batches, nil
}

// blockPatience bounds a block, as a multiple of StatementTimeout, which bounds each answer: a block is a few dozen statements, and
// one that is given up is begun anew, so that on a slow server a small bound would end every one.
const blockPatience = 12

func (s *Store) summarise(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, blockPatience*s.cfg.StatementTimeout)
	defer cancel()
	last, err := s.lastBlock(ctx)
	if err != nil {
		return 0, err
	}
	var open struct {
		Batches, Bytes int
		Rows           int `db:"open_rows"`
	}
	if err := s.side.GetContext(ctx, &open, openBatchesSQL, last, last, s.blocks.batches); err != nil {
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

// lastBlock is the last id of the newest block, 0 if there is none. A block that does not end with the batch that was
// summarised is of no use to anybody and is dropped: retention has deleted its batches, or somebody has emptied the
// journal, whose ids may then begin again.
func (s *Store) lastBlock(ctx context.Context) (uint64, error) {
	for {
		var newest struct {
			LastID uint64 `db:"last_id"`
			Live   bool
		}
		err := s.side.GetContext(ctx, &newest, newestBlockSQL)
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

// allBuckets lists the buckets of a block's rows. MySQL finds them by primary key only if they are named.
var allBuckets = func() string {
	var list []string
	for bucket := range patternBucket + 1 {
		list = append(list, fmt.Sprint(bucket))
	}
	return strings.Join(append(list, fmt.Sprint(headBucket)), ",")
}()

func (s *Store) dropBlock(ctx context.Context, last uint64) error {
	_, err := s.side.ExecContext(ctx, fmt.Sprintf(dropBlockSQL, allBuckets), last)
	return err
}

// takeTurn begins a transaction that has the turn, nil if another process has it. The server ends the turn with the
// connection, and that of a process that is frozen after ten seconds.
func (s *Store) takeTurn(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.tryTurn(ctx)
	if tx != nil || err != nil {
		return tx, err
	}
	// Somebody has it, unless there is none yet.
	var have int
	if err := s.side.GetContext(ctx, &have, haveTurnSQL); have > 0 || err != nil {
		return nil, err
	}
	if _, err := s.side.ExecContext(ctx, makeTurnSQL); err != nil {
		return nil, err
	}
	return s.tryTurn(ctx)
}

func (s *Store) tryTurn(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.side.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	var row uint64
	if err := tx.QueryRowContext(ctx, takeTurnSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err says why; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return tx, nil
}

// A block is being read.
type block struct {
	limits  blockLimits
	after   uint64 // it has the batches beyond this id
	last    uint64
	settled time.Time // of the last batch
	batches int
	rows    int
	bytes   int
	items   []item
	damaged []item // batches that could not be unpacked
	full    bool
}

// readBlock reads the batches after an id, up to where the block is full, or may not go on: see take.
func (s *Store) readBlock(ctx context.Context, tx *sql.Tx, after uint64) (*block, error) {
	any, err := s.anyBatches(ctx, after) // before the others
	if err != nil {
		return nil, err
	}
	b := &block{limits: s.blocks, after: after, last: after}
	// Each page has twice as many as the one before: what is left of a page when the block ends was sent for nothing.
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

// read reads a page, and returns how many batches of it the block has taken.
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
	ids  []uint64 // those that the block has not passed yet
	upTo uint64   // there may be others beyond
}

func (s *Store) anyBatches(ctx context.Context, after uint64) (*anyBatches, error) {
	tx, err := s.side.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
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

// take reports whether the block may go on with a committed batch, which is so unless a batch with a lower id may be
// committed later: one that was seen uncommitted just before, or one with an id that nobody has, for which see gapRest.
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
	if b.batches > 0 { // ids have leapt: the block ends before that
		b.full = true
		return false
	}
	b.after = id - 1 // what is between the two blocks is searched, and is nothing
	return true
}

// isLarge reports whether the block may have no more batches, however many it has.
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
	own := b.items[from:] // rows of a batch have much in common
	slices.Sort(own)
	b.items = b.items[:from+len(slices.Compact(own))]
}

// summaryBytes is about how large a statement may get.
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

// Contract: no lock. It reads one row a block and the batch that the block ends with, both by primary key.
const deadBlocksSQL = `SELECT h.last_id FROM cache_outbox_summaries AS h
LEFT JOIN cache_outbox_journal AS j ON j.id = h.last_id AND j.settled_at = h.settled_at
WHERE h.bucket = 254 AND j.id IS NULL ORDER BY h.last_id`

// ExpireSummaries drops the blocks whose last batch is gone, which retention deletes after the others. What a dropped
// block still had is searched without it. Repeating it, or running it in several workers, is harmless.
func (s *Store) ExpireSummaries(ctx context.Context) error {
	if err := s.expireSummaries(ctx); err != nil {
		return fmt.Errorf("expire summaries: %w", err)
	}
	return nil
}

func (s *Store) expireSummaries(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var dead []uint64
	if err := s.side.SelectContext(ctx, &dead, deadBlocksSQL); err != nil {
		return err
	}
	for _, last := range dead {
		if err := s.dropBlock(ctx, last); err != nil {
			return err
		}
	}
	return nil
}
