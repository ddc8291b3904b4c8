package bench

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// floorBatch is how many rows the floor claims, as many as a worker.
const floorBatch = 1000

// A floorShop does with plain statements what a worker does, and nothing else: no tool can be
// faster.
type floorShop struct{ shop *shop }

// drain is the shortest loop that does to coupons what a worker does. It claims the same rows,
// unlinks the same keys with their leases, publishes the same bytes, writes the same journal row,
// deletes and commits. It has no map, error handling, limits, beacon or deadline. It makes one
// round trip to Redis and relies on its order.
func (f floorShop) drain(ctx context.Context) error {
	conn, err := f.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for seq := uint64(1); ; seq++ {
		n, err := f.carry(ctx, conn, seq)
		if n == 0 || err != nil {
			return err
		}
	}
}

// floorConn is a connection that saves each batch the setting of its isolation.
func (f floorShop) conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := f.shop.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (f floorShop) carry(ctx context.Context, conn *sql.Conn, seq uint64) (n int, err error) {
	tx, err := conn.BeginTx(ctx, nil) // READ COMMITTED by the session
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	entries, ids, err := floorClaim(ctx, tx)
	if len(entries) == 0 || err != nil {
		return 0, err
	}
	if err := f.apply(ctx, entries, seq); err != nil {
		return 0, err
	}
	body, err := store.EncodeEntries(entries)
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, hashes, body)
VALUES ('floor', ?, '', '', 0, ?, ?)`, len(entries), make([]byte, 4*len(entries)), body); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM cache_outbox WHERE id IN ("+ids+")"); err != nil {
		return 0, err
	}
	return len(entries), tx.Commit()
}

func floorClaim(ctx context.Context, tx *sql.Tx) (entries []store.JournalEntry, ids string, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, entity, entity_id, trace FROM cache_outbox ORDER BY id LIMIT "+
		strconv.Itoa(floorBatch)+" FOR UPDATE SKIP LOCKED")
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	var list strings.Builder
	for rows.Next() {
		var e store.JournalEntry
		if err := rows.Scan(&e.ID, &e.Entity, &e.EntityID, &e.Trace); err != nil {
			return nil, "", err
		}
		e.Keys = []string{couponKey(e.EntityID)}
		entries = append(entries, e)
		if list.Len() > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.FormatUint(e.ID, 10))
	}
	return entries, list.String(), rows.Err()
}

func (f floorShop) apply(ctx context.Context, entries []store.JournalEntry, seq uint64) error {
	const part = 250 // keys of one UNLINK
	replies, err := f.shop.Pipelined(ctx, func(p redis.Pipeliner) error {
		keys := make([]string, 0, len(entries))
		for from := 0; from < len(entries); from += part {
			names := make([]string, 0, 2*part)
			for _, e := range entries[from:min(from+part, len(entries))] {
				names = append(names, "lock:fill:{"+e.Keys[0]+"}", e.Keys[0])
				keys = append(keys, e.Keys[0])
			}
			p.Unlink(ctx, names...)
		}
		m := protocol.Message{Epoch: "FLOORFLOORFLOORFLOORFLOORF", Seq: seq, At: time.Now().UTC(), Keys: keys}
		p.Publish(ctx, protocol.DefaultChannel, m.Append(nil, protocol.FormatEvent))
		return nil
	})
	errs := []error{err}
	for _, r := range replies {
		errs = append(errs, r.Err())
	}
	return errors.Join(errs...)
}
