package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// floorSetBatch is how many sets the floor takes at a time, as many as a worker.
const floorSetBatch = 500

// A setsFloor takes index sets apart with plain statements.
type setsFloor struct{ shop *shop }

// drain is the shortest loop that unlinks sets and loses no member, even if it is interrupted. It
// reads the requests, renames the sets to derived names, unlinks the members with their leases,
// publishes them, removes the renamed sets, and writes one journal row for all of them. It has no
// error handling, no large sets, no keys of other types, no concurrent worker, no beacon and no
// budget.
func (f setsFloor) drain(ctx context.Context) error {
	for seq := uint64(1); ; seq++ {
		entries, ids, err := f.requests(ctx)
		if len(entries) == 0 || err != nil {
			return err
		}
		if err := f.take(ctx, entries, seq); err != nil {
			return err
		}
		if err := f.note(ctx, entries, ids); err != nil {
			return err
		}
	}
}

func (f setsFloor) requests(ctx context.Context) (entries []store.JournalEntry, ids string, err error) {
	rows, err := f.shop.db.QueryContext(ctx, "SELECT id, name FROM cache_outbox_sweeps ORDER BY id LIMIT "+strconv.Itoa(floorSetBatch))
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var id uint64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, "", err
		}
		entries = append(entries, store.JournalEntry{ID: id, Sets: []string{name}})
		list = append(list, strconv.FormatUint(id, 10))
	}
	return entries, strings.Join(list, ","), rows.Err()
}

func (f setsFloor) take(ctx context.Context, entries []store.JournalEntry, seq uint64) error {
	private := make([]string, len(entries))
	members := make([]*redis.StringSliceCmd, len(entries))
	_, err := f.shop.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, e := range entries {
			private[i] = protocol.SetPrefix + "{" + e.Sets[0] + "}:" + strconv.FormatUint(e.ID, 10)
			p.RenameNX(ctx, e.Sets[0], private[i])
			members[i] = p.SMembers(ctx, private[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = f.shop.Pipelined(ctx, func(p redis.Pipeliner) error {
		const part = 250 // members of one UNLINK
		var keys []string
		for _, m := range members {
			keys = append(keys, m.Val()...)
		}
		for from := 0; from < len(keys); from += part {
			var names []string
			for _, key := range keys[from:min(from+part, len(keys))] {
				names = append(names, "lock:fill:{"+key+"}", key)
			}
			p.Unlink(ctx, names...)
		}
		for from := 0; from < len(keys); from += protocol.MaxEntries {
			m := protocol.Message{Epoch: "FLOORFLOORFLOORFLOORFLOORF", Seq: seq, At: time.Now().UTC(), Keys: keys[from:min(from+protocol.MaxEntries, len(keys))]}
			p.Publish(ctx, protocol.DefaultChannel, m.Append(nil, protocol.FormatEvent))
		}
		p.Unlink(ctx, private...)
		return nil
	})
	return err
}

func (f setsFloor) note(ctx context.Context, entries []store.JournalEntry, ids string) error {
	body, err := store.EncodeEntries(entries)
	if err != nil {
		return err
	}
	tx, err := f.shop.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, hashes, body)
VALUES ('floor', 0, '', '', 0, '', ?)`, body); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM cache_outbox_sweeps WHERE id IN ("+ids+")"); err != nil {
		return err
	}
	return tx.Commit()
}
