package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// A JournalEntry is the journal's record of one settled row, or of one finished sweep: see IsSweep.
type JournalEntry struct {
	// first ID of the row in cache_outbox; 0 if it never was in it; for a sweep, the sweep's ID
	ID       uint64
	Entity   string // empty for a sweep
	EntityID string
	Trace    string
	Keys     []string
	Patterns []string
	Sets     []string
	// HoldMillis is the hold time of the keys, or of the names that a sweep finds.
	HoldMillis int64
	// WrittenMicros is when the row was inserted, by the database's clock, in microseconds since
	// 1970; 0: unknown. It is in the timeline of the batch, which only SearchJournal reads.
	WrittenMicros int64
	// Partial reports that the row was not settled: its lookup had failed, and this is the part of
	// its plan that needs no lookup.
	Partial bool
}

// Contract: appends one row; takes no lock that another insert waits for. Binary data are sent as
// text, since MySQL cannot list statements while one of them is not UTF-8 (3854).
const RecordSQL = `INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, born_us, hashes, body, journey)
VALUES (?,?,?,?,?,?,FROM_BASE64(?),FROM_BASE64(?),FROM_BASE64(?))`

// A Journal reads and writes the journal. Safe for concurrent use.
type Journal struct{ db *session.Sessions }

// NewJournal returns the Journal of an outbox.
func NewJournal(db *session.Sessions) *Journal { return &Journal{db} }

// IsSweep reports whether the entry is for a finished sweep. An entry for a row has an entity.
func (e *JournalEntry) IsSweep() bool { return e.Entity == "" }

// Record returns the arguments of RecordSQL.
func (j *Journal) Record(rows int, mapVersion string, position Position, born uint64, hashes, body, journey []byte) []any {
	text := base64.StdEncoding.EncodeToString
	args := []any{j.db.Config.Worker, rows, mapVersion, position.Epoch, position.N, born, text(hashes), text(body), nil}
	if journey != nil {
		args[len(args)-1] = text(journey)
	}
	return args
}

// Contract: exclusive locks on at most the rows that it deletes, found by the index on settled_at;
// oldest first. Repeating it deletes the next ones.
const expireSQL = `DELETE FROM cache_outbox_journal
WHERE settled_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY settled_at LIMIT ?`

// ExpireJournal deletes journal rows older than retention, at most chunk rows per statement, until
// none is left or ctx ends, and returns how many. Several workers can run it concurrently: they
// share the work.
func (j *Journal) ExpireJournal(ctx context.Context, retention time.Duration, chunk int) (deleted int64, err error) {
	for {
		n, err := j.expire(ctx, retention, chunk)
		deleted += n
		if err != nil || n < int64(chunk) {
			return deleted, err
		}
	}
}

func (j *Journal) expire(ctx context.Context, retention time.Duration, chunk int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	n, err := session.Affected(j.db.Side.ExecContext(ctx, expireSQL, retention.Microseconds(), chunk))
	return n, dberr.Wrap(err, "expire journal")
}

// Hold returns HoldMillis as a duration.
func (e *JournalEntry) Hold() time.Duration { return time.Duration(e.HoldMillis) * time.Millisecond }

// Names returns how many keys, patterns and sets the entry has.
func (e *JournalEntry) Names() int { return len(e.Keys) + len(e.Patterns) + len(e.Sets) }

// Bytes returns the total length of the entry's keys, patterns and sets in bytes.
func (e *JournalEntry) Bytes() (n int) {
	for _, list := range [...][]string{e.Keys, e.Patterns, e.Sets} {
		for _, name := range list {
			n += len(name)
		}
	}
	return n
}

// A Batch is the head of a journal row.
type Batch struct {
	ID         uint64    `db:"id" json:"id"`
	Worker     string    `db:"worker" json:"worker"`
	SettledAt  time.Time `db:"settled_at" json:"settled_at"` // UTC, the database's clock
	Rows       int       `db:"row_count" json:"rows"`
	MapVersion string    `db:"map_version" json:"map_version"`
	// Born is Settlement.Born of the batch, or of its latest replay. Only ReadJournal and ClaimHeal
	// read it.
	Born uint64 `db:"born_us" json:"-"`
	// Journey is nil if the timeline is unknown. Only SearchJournal reads it.
	Journey *Journey `db:"-" json:"-"`
}

// BornAt returns Born as a time, or nil if it is unknown.
func (b *Batch) BornAt() *time.Time {
	if b.Born == 0 {
		return nil
	}
	return new(time.UnixMicro(int64(b.Born)).UTC())
}

// A Position is a position in the order of acknowledged writes: see package keyspace. The journal
// stores one for each batch. If Redis has the position, it still has the batch's unlinks. The zero
// Position protects nothing.
type Position struct {
	Epoch string `db:"epoch"` // at most 26 bytes
	N     uint64 `db:"beat"`
}

// highEpoch sorts after every epoch, since epochs consist of upper-case letters and digits, and
// before DamagedEpoch.
const highEpoch = "["

// Contract: no lock (a consistent read), one entry of the index on (epoch, beat), read backwards
// from the bound.
const lastPositionSQL = `SELECT epoch, beat FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch < ? ORDER BY epoch DESC, beat DESC LIMIT 1`

// LastPositions lists the last position of each epoch that has a batch in the journal. It runs one
// statement per epoch, since a GROUP BY reads the whole index whenever the statistics are outdated.
// Each process that worked within the journal's retention has two epochs.
func (j *Journal) LastPositions(ctx context.Context) ([]Position, error) {
	var positions []Position
	for bound := highEpoch; ; {
		last, err := session.FindRow[Position](ctx, j.db, lastPositionSQL, bound)
		if last == nil || last.Epoch == "" {
			return positions, dberr.Wrap(err, "list last positions")
		}
		positions = append(positions, *last)
		bound = last.Epoch
	}
}

// Contract: no lock (a consistent read), the entries of the index on settled_at since a time, and
// their rows.
const recentPositionsSQL = `SELECT epoch, MAX(beat) AS beat FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND epoch > '' AND epoch < '` + highEpoch + `' GROUP BY epoch`

// RecentPositions lists the last position of each epoch that settled, healed or adopted a batch
// within the duration since. Each such action writes its row with the current time before the
// commit, so since should exceed the longest transaction.
func (j *Journal) RecentPositions(ctx context.Context, since time.Duration) (positions []Position, err error) {
	err = j.db.ReadRows(ctx, &positions, recentPositionsSQL, since.Microseconds())
	return positions, dberr.Wrap(err, "list recent positions")
}

// Contract: exclusive locks on at most LIMIT rows of one epoch and on no other (READ COMMITTED,
// index on (epoch, beat), SKIP LOCKED). Repeating it elsewhere returns other rows.
const claimAdoptSQL = `SELECT id FROM cache_outbox_journal FORCE INDEX (beats) WHERE epoch = ? LIMIT ? FOR UPDATE SKIP LOCKED`

// Adopt moves batches of an epoch to another position, because nothing stale can be left of them.
// It moves up to limit batches that no other session has locked, and returns how many. Repeating it
// moves the next ones.
func (j *Journal) Adopt(ctx context.Context, epoch string, by Position, limit int) (adopted int, err error) {
	err = j.db.InTx(ctx, j.db.Claims, func(ctx context.Context, tx *sqlx.Tx) error {
		var ids []uint64
		if err := tx.SelectContext(ctx, &ids, claimAdoptSQL, epoch, limit); err != nil || len(ids) == 0 {
			return err
		}
		adopted = len(ids)
		if err := moveBatches(ctx, tx, ids, by, sql.Null[uint64]{}); err != nil {
			return err
		}
		return j.noteBatch(ctx, tx, "", by, nil)
	})
	if err != nil {
		return 0, fmt.Errorf("adopt batches of epoch %s: %w", epoch, err)
	}
	return adopted, nil
}

// Limits of the names of a journal row and of their bytes, so neither its writer nor its readers
// need much memory. One name always fits.
const (
	partNames = 20_000
	partBytes = 512 << 10
)

// Cut returns the entries of the next journal row, and the rest. An entry that is too large for one
// row continues in the next: each has some of its names, and all of its other fields.
func Cut(entries []JournalEntry) (part, rest []JournalEntry) {
	names, bytes := partNames, partBytes
	for i := range entries {
		e := &entries[i]
		n, b := e.Names(), e.Bytes()
		if n <= names && b <= bytes {
			names, bytes = names-n, bytes-b
			continue
		}
		if i > 0 {
			return entries[:i:i], entries[i:]
		}
		first, left := e.cut()
		if left.Names() == 0 { // one name, larger than a row should be
			return entries[:1:1], entries[1:]
		}
		return []JournalEntry{first}, append([]JournalEntry{left}, entries[1:]...)
	}
	return entries, nil
}

// cut splits an entry that is too large for one row of the journal into the part for that row, with
// at least one name, and the rest.
func (e *JournalEntry) cut() (first, left JournalEntry) {
	first, left = *e, *e
	names, bytes, none := partNames, partBytes, true
	take := func(list []string) (taken, rest []string) {
		for i, name := range list {
			if names == 0 || len(name) > bytes && !none {
				names = 0
				return list[:i:i], list[i:]
			}
			names, bytes, none = names-1, bytes-len(name), false
		}
		return list, nil
	}
	first.Keys, left.Keys = take(e.Keys)
	first.Patterns, left.Patterns = take(e.Patterns)
	first.Sets, left.Sets = take(e.Sets)
	return first, left
}

// Contract for both: no lock (consistent reads). The first reads LIMIT rows by primary key, the
// other one entry of the index on settled_at and its row. Bodies beyond 256 KiB are left out.
const (
	newestBodiesSQL = "SELECT IF(LENGTH(body) <= 262144, body, '') FROM cache_outbox_journal ORDER BY id DESC LIMIT ?"
	bodyOfTimeSQL   = `SELECT IF(LENGTH(body) <= 262144, body, '') FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= UTC_TIMESTAMP(6) - INTERVAL ? MINUTE ORDER BY settled_at LIMIT 1`
)

const (
	newestBodies = 100     // batches that JournalEntities reads
	bodyInterval = 15      // minutes between two more batches
	bodyReach    = 24 * 60 // minutes back
)

// JournalEntities lists entities that were settled within a day: of the newest hundred batches, and
// of one batch per quarter of an hour. If the journal has more than a hundred batches, it runs some
// hundred small statements, so call it rarely.
func (j *Journal) JournalEntities(ctx context.Context) (map[string]bool, error) {
	var bodies [][]byte
	if err := j.db.ReadRows(ctx, &bodies, newestBodiesSQL, newestBodies); err != nil {
		return nil, fmt.Errorf("list entities of the journal: %w", err)
	}
	more := len(bodies) == newestBodies // else these are all batches
	for ago := bodyReach; more && ago > 0; ago -= bodyInterval {
		if err := j.db.ReadRows(ctx, &bodies, bodyOfTimeSQL, ago); err != nil {
			return nil, fmt.Errorf("list entities of the journal: %w", err)
		}
	}
	found := map[string]bool{}
	for _, body := range bodies {
		entries, err := DecodeEntries(body)
		if err != nil { // left out above, or damaged, which other readers report
			continue
		}
		for i := range entries {
			if !entries[i].IsSweep() {
				found[entries[i].Entity] = true
			}
		}
	}
	return found, nil
}

// A Journey is the timeline of a batch. Its times are durations before the settlement, by the
// worker's clock, so clocks are never compared. 0: unknown.
type Journey struct {
	Claimed  time.Duration // the claim returned
	Unlinked time.Duration // Redis had confirmed the last key
	// Redis had confirmed the last message; also 0 if there was nothing to publish
	Published time.Duration
	Receivers int          // of the message with the fewest receivers; -1: unknown
	Runs      []MessageRun // the numbers of the messages; none: unknown
}

// A MessageRun is a sequence of messages of one publisher epoch without a gap, from First to Last.
type MessageRun struct {
	Epoch       uint64 // its EpochHash
	First, Last uint64
}

// EpochHash returns a hash of a publisher epoch for the journal: FNV-1a. The random epoch itself
// would take three times the space.
func EpochHash(epoch string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(epoch))
	return h.Sum64()
}

// Marks are the times that a Journey is computed from.
type Marks struct {
	Claimed, Unlinked, Published time.Time    // zero: not known
	Receivers                    int          // as in Journey
	Runs                         []MessageRun // as in Journey
}

const journeyFormat = 1

// Journey encodes the timeline of a batch that is settled now. It returns nil if the batch has no
// rows with known times. The encoding is:
//
//   - one byte of format,
//   - the three times in microseconds,
//   - the number of receivers plus one,
//   - for each entry, the distance of its insert time from the previous one in microseconds,
//   - for each run of messages, the epoch, the first number and how many follow.
func (m *Marks) Journey(entries []JournalEntry) []byte {
	if m.Claimed.IsZero() {
		return nil
	}
	b := append(make([]byte, 0, 32+2*len(entries)), journeyFormat)
	for _, at := range [...]time.Time{m.Claimed, m.Unlinked, m.Published} {
		ago := time.Duration(0)
		if !at.IsZero() {
			ago = max(time.Since(at), time.Microsecond)
		}
		b = binary.AppendUvarint(b, uint64(ago.Microseconds()))
	}
	b = binary.AppendUvarint(b, uint64(m.Receivers+1))
	before := int64(0)
	for i := range entries {
		b = binary.AppendVarint(b, entries[i].WrittenMicros-before)
		before = entries[i].WrittenMicros
	}
	for _, r := range m.Runs {
		b = binary.BigEndian.AppendUint64(b, r.Epoch)
		b = binary.AppendUvarint(b, r.First)
		b = binary.AppendUvarint(b, r.Last-r.First)
	}
	return b
}

// readJourney decodes the result of Marks.Journey and sets the insert times of the entries. It
// returns nil if they are unknown: an older worker settled the batch, or the data do not fit these
// entries.
func readJourney(b []byte, entries []JournalEntry) *Journey {
	if len(b) == 0 || b[0] != journeyFormat {
		return nil
	}
	d := decoder{rest: b[1:]}
	var j Journey
	for _, ago := range [...]*time.Duration{&j.Claimed, &j.Unlinked, &j.Published} {
		*ago = time.Duration(d.number()) * time.Microsecond
	}
	j.Receivers = int(d.number()) - 1
	written := make([]int64, len(entries))
	before := int64(0)
	for i := range written {
		distance, n := binary.Varint(d.rest)
		if n <= 0 {
			return nil
		}
		d.rest = d.rest[n:]
		before += distance
		written[i] = before
	}
	for len(d.rest) > 8 && !d.bad { // none from a worker of a version without runs
		r := MessageRun{Epoch: binary.BigEndian.Uint64(d.rest)}
		d.rest = d.rest[8:]
		r.First = d.number()
		r.Last = r.First + d.number()
		j.Runs = append(j.Runs, r)
	}
	if d.bad || len(d.rest) > 0 {
		return nil
	}
	for i := range entries {
		entries[i].WrittenMicros = written[i]
	}
	return &j
}
