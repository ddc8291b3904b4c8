package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/protocol"
)

// A block is a run of the journal's batches that is summarized. Its summary lists, for each name
// that can be searched for, the batches that have it, as hashes. A listed batch may not have the
// name, but a batch that has it is always listed. The hashes are distributed over buckets, one row
// of cache_outbox_summaries each, so a search reads 1/64 of all summaries.
//
// Summaries only save work. Batches outside of all blocks are searched one by one, and so are the
// batches of a block that no longer ends with the batch that was summarized.
const (
	nameBuckets = 64
	// a key is looked up by each of its prefixes, so all patterns share one bucket
	patternBucket = nameBuckets
	nowhereBucket = 253 // no row
	headBucket    = 254 // one row per block, with the batches that could not be unpacked
	turnBucket    = 255 // one row, locked by the process that summarizes
)

// blockLimits are the limits of a block. Its last batch may exceed them.
type blockLimits struct {
	batches int
	rows    int
	bytes   int // of packed bodies
	items   int
	spread  uint64 // IDs from the first to the last
}

// usualBlocks keeps the work of a search without a summary small, and the size of each summary.
var usualBlocks = blockLimits{batches: 4096, rows: 16_384, bytes: 256 << 10, items: 1 << 18, spread: 1 << 16}

// Number of hash bits in addition to the bucket. In ten million rows with six names each, fifteen
// batches are listed by mistake. A key of a hundred characters looks up as many prefixes, so
// patterns have more bits.
const (
	nameBits    = 16
	patternBits = 32
)

// The kinds of names that can be searched for.
const (
	itemEntity  = 'n' // an entity's name
	itemObject  = 'e' // an entity and an ID
	itemTrace   = 't'
	itemRow     = 'r' // 256 consecutive row IDs, which a batch mostly has together
	itemName    = 'k' // a key, or an index set
	itemPattern = 'p' // the literal text that a pattern begins with
)

// A name is where a searchable name is listed: a bucket, and a hash in it.
type name struct {
	bucket uint8
	hash   uint32
}

// nameOf returns the bucket and hash of a text, which may have several parts.
func nameOf(kind byte, text ...string) name {
	h := (fnv64Offset ^ uint64(kind)) * fnv64Prime
	for _, part := range text {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * fnv64Prime
		}
		h *= fnv64Prime // of a zero byte
	}
	h ^= h >> 32 // the last bytes have little effect on FNV's high bits
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	if kind == itemPattern {
		return name{patternBucket, uint32(h) & (1<<patternBits - 1)}
	}
	return name{uint8(h % nameBuckets), uint32(h>>8) & (1<<nameBits - 1)}
}

// FNV-1a.
const (
	fnv64Offset uint64 = 14695981039346656037
	fnv64Prime  uint64 = 1099511628211
)

// rowName returns the name of a row.
func rowName(id uint64) name {
	return nameOf(itemRow, string(binary.BigEndian.AppendUint64(nil, id>>8)))
}

// eachName calls add with every name that finds the entry.
func (e *JournalEntry) eachName(add func(name)) {
	if !e.IsSweep() {
		add(nameOf(itemEntity, e.Entity))
		add(nameOf(itemObject, e.Entity, e.EntityID))
		if e.ID != 0 {
			add(rowName(e.ID))
		}
	}
	if e.Trace != "" {
		add(nameOf(itemTrace, e.Trace))
	}
	for _, list := range [...][]string{e.Keys, e.Sets} {
		for _, text := range list {
			add(nameOf(itemName, text))
		}
	}
	for _, pattern := range e.Patterns {
		if glob, err := protocol.CompileGlob(pattern); err == nil { // an invalid one matches nothing
			add(nameOf(itemPattern, glob.Prefix()))
		}
	}
}

// An item states that a batch has a name. It consists of bucket, hash and number, the distance of
// the batch's ID from the block's after_id, packed so that items sort in this order.
type item uint64

const numberBits = 20 // more than blockLimits.spread has

func newItem(n name, number uint64) item {
	return item(uint64(n.bucket)<<(patternBits+numberBits) | uint64(n.hash)<<numberBits | number)
}

func (i item) bucket() uint8  { return uint8(i >> (patternBits + numberBits)) }
func (i item) hash() uint64   { return uint64(i) >> numberBits & (1<<patternBits - 1) }
func (i item) number() uint64 { return uint64(i) & (1<<numberBits - 1) }

const itemFormat = 1

// appendItems packs the items of one bucket, which must be sorted and distinct: one byte of format,
// then two numbers per item. The first is the distance of its hash from the previous hash. The
// second is its number, as a distance from the previous number if the hash is the same.
func appendItems(b []byte, items []item) []byte {
	b = append(b, itemFormat)
	hash, number := uint64(0), uint64(0)
	for i, it := range items {
		if i > 0 && it.hash() != hash {
			number = 0
		}
		b = binary.AppendUvarint(b, it.hash()-hash)
		b = binary.AppendUvarint(b, it.number()-number)
		hash, number = it.hash(), it.number()
	}
	return b
}

var errItems = errors.New("summary is damaged")

// findItems calls found with the numbers of the items that have one of the hashes, which must be
// sorted.
func findItems(packed []byte, hashes []uint32, found func(number uint64)) error {
	if len(packed) == 0 || packed[0] != itemFormat {
		return errItems
	}
	d := decoder{rest: packed[1:]}
	hash, number := uint64(0), uint64(0)
	for len(d.rest) > 0 {
		distance := d.number()
		if distance > 0 {
			number = 0
		}
		hash += distance
		number += d.number()
		if d.bad || hash >= 1<<patternBits {
			return errItems
		}
		if _, ok := slices.BinarySearch(hashes, uint32(hash)); ok {
			found(number)
		}
	}
	return nil
}

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
// never gets more batches later: see block.mayContinue.
func (s *Summaries) Summarise(ctx context.Context) (batches int, err error) {
	defer func() { err = dberr.Wrap(err, "summarize the journal") }()
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
	if err := s.db.ReadRow(ctx, &open, openBatchesSQL, last, last, s.blocks.batches); err != nil {
		return 0, err
	}
	if open.Batches < s.blocks.batches && open.Rows < s.blocks.rows && open.Bytes < s.blocks.bytes {
		return 0, nil
	}
	// Another process may have the turn. The server ends it with the connection, and after ten seconds
	// if the process is frozen.
	tx, err := lockTurn(ctx, ctx, s.db, takeTurnSQL, haveTurnSQL, makeTurnSQL)
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
	if err := b.writeSummary(ctx, tx); err != nil {
		return 0, err
	}
	return b.batches, tx.Commit()
}

// blockPatience bounds the time for a block, as a multiple of StatementTimeout, which bounds each
// statement. A block takes a few dozen statements. A block that times out starts over, so a small
// bound would fail forever on a slow server.
const blockPatience = 12

// lastBlock returns the last ID of the newest block, or 0. It drops blocks that do not end with the
// batch that was summarized: retention has deleted their batches, or an operator has emptied the
// journal, whose IDs may then start over.
func (s *Summaries) lastBlock(ctx context.Context) (uint64, error) {
	for {
		newest, err := session.FindRow[foundBlock](ctx, s.db, newestBlockSQL)
		switch {
		case newest == nil:
			return 0, err
		case newest.Live:
			return newest.LastID, nil
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
	return s.db.Exec(ctx, fmt.Sprintf(dropBlockSQL, allBuckets), last)
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

// readBlock reads the batches after an ID until the block is full or must not continue: see
// mayContinue.
func (s *Summaries) readBlock(ctx context.Context, tx *sqlx.Tx, after uint64) (*block, error) {
	any, err := s.anyBatches(ctx, after) // must run before the other reads
	if err != nil {
		return nil, err
	}
	b := &block{limits: s.blocks, after: after, last: after}
	// Each page is twice as large as the previous one. The rest of a page is wasted when the block
	// ends.
	for page := 8; ; page *= 2 {
		page = min(page, s.blocks.batches-b.batches)
		n, err := b.readBatches(ctx, tx, any, page)
		if err != nil {
			return nil, err
		}
		b.full = b.full || b.batches >= s.blocks.batches || b.isLarge()
		if n < page || b.full {
			return b, nil
		}
	}
}

// readBatches reads a page and returns how many of its batches the block has taken.
func (b *block) readBatches(ctx context.Context, tx *sqlx.Tx, any *anyBatches, page int) (taken int, err error) {
	rows, err := tx.QueryxContext(ctx, nextBatchesSQL, b.last, page)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var next struct {
			journalRow
			Age int64
		}
		if err := rows.StructScan(&next); err != nil {
			return 0, err
		}
		if !b.mayContinue(next.ID, time.Duration(next.Age)*time.Microsecond, any) {
			break
		}
		b.addBatch(&next.journalRow)
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
	var rows []Batch
	if err := tx.SelectContext(ctx, &rows, anyBatchesSQL, after, s.blocks.batches); err != nil {
		return nil, err
	}
	any := &anyBatches{session.AppendIDs(nil, rows, func(b Batch) uint64 { return b.ID }), math.MaxUint64}
	if len(rows) == s.blocks.batches {
		any.upTo = any.ids[len(rows)-1]
	}
	return any, nil
}

// mayContinue reports whether the block may continue with a committed batch. It may not if a batch
// with a lower ID can still be committed: a batch that was seen uncommitted just before, or one
// with an ID that has no batch (see gapRest).
func (b *block) mayContinue(id uint64, age time.Duration, any *anyBatches) bool {
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

func (b *block) addBatch(row *journalRow) {
	b.last, b.settled = row.ID, row.SettledAt
	b.batches++
	b.rows += row.Rows
	b.bytes += len(row.Body)
	number := row.ID - b.after
	entries, err := DecodeEntries(row.Body)
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

// writeSummary writes the summary: a row for each bucket that has items, and one for the block.
func (b *block) writeSummary(ctx context.Context, tx *sqlx.Tx) error {
	slices.Sort(b.items)
	var args []any
	bytes := 0
	flush := func() error {
		if len(args) == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, summarySQL+tuples("(?,?,?,?,FROM_BASE64(?))", len(args)/5), args...)
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
func (s *Summaries) ExpireSummaries(ctx context.Context) (err error) {
	defer func() { err = dberr.Wrap(err, "expire summaries") }()
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
