package chaos

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

const (
	keyLife = 6 * time.Hour // longer than any run
	group   = 16            // transactions whose keys are set in one round trip
)

// A shop writes transactions. It relies only on acknowledgements: a transaction needs keys that
// Redis has acknowledged, and the ledger shows whether it committed.
type shop struct {
	stage   *stage
	notes   *notebook
	readers chan struct{} // limits the readers that are under way
	reading sync.WaitGroup
}

func newShop(s *stage) *shop {
	return &shop{stage: s, notes: &notebook{}, readers: make(chan struct{}, 3)}
}

// write writes transactions until ctx ends, and returns when the last one has ended. The servers
// may be unavailable at any time.
func (s *shop) write(ctx context.Context, seed uint64, writers int) {
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			w := writer{shop: s, db: s.stage.shops[i%len(s.stage.shops)], dice: rand.New(rand.NewPCG(seed, uint64(100+i)))}
			defer w.drop()
			for ctx.Err() == nil {
				w.turn(ctx)
			}
		})
	}
	group.Wait()
	s.reading.Wait()
}

// A writer is one client of the database.
type writer struct {
	*shop
	db   *sql.DB
	dice *rand.Rand
	conn *sql.Conn
}

// turn sets the keys of a few transactions and then writes these.
func (w *writer) turn(ctx context.Context) {
	batch := make([]transaction, group)
	for i := range batch {
		batch[i] = transaction{id: w.notes.next(), kind: draw(w.dice), size: 2 + w.dice.IntN(40)}
		if batch[i].kind == bulk {
			batch[i].size = 50 + w.dice.IntN(250)
		}
	}
	// A transaction that has begun is finished, so that no transaction is open when the round ends.
	lasting := context.WithoutCancel(ctx)
	if !w.set(lasting, batch) {
		_ = sleep.For(ctx, 20*time.Millisecond) // Redis is unavailable
		return
	}
	for _, t := range batch {
		w.notes.note(t)
		if !w.run(lasting, t) {
			w.drop()
			_ = sleep.For(ctx, 20*time.Millisecond) // MySQL is unavailable
		}
	}
}

// set sets all keys, and reports whether Redis has acknowledged all of them.
func (w *writer) set(ctx context.Context, batch []transaction) bool {
	began := time.Now() // before the master is looked up
	pipe := w.stage.cache().Pipeline()
	// as package cache stores it: its lease is earlier than any UNLINK
	old := fmt.Sprintf(`{"e":%d,"b":%d,"v":"old"}`, began.Add(keyLife).UnixMilli(), began.UnixMicro())
	for i := range batch {
		for _, key := range batch[i].keys() {
			pipe.Set(ctx, key, old, keyLife)
		}
	}
	results, err := pipe.Exec(ctx)
	done := time.Now()
	if err != nil {
		return false
	}
	for _, r := range results {
		if r.Err() != nil {
			return false
		}
	}
	for i := range batch {
		batch[i].setBegan, batch[i].setDone = began, done
	}
	return true
}

// run runs one transaction and reports whether the connection is still good.
func (w *writer) run(ctx context.Context, t transaction) bool {
	if t.kind == read {
		w.send(ctx, t)
	}
	end := "COMMIT"
	if t.kind.rollsBack() {
		end = "ROLLBACK"
	}
	if t.kind != heldOpen && t.kind != heldBack {
		return w.exec(ctx, "BEGIN;"+t.inserts()+end)
	}
	if !w.exec(ctx, "BEGIN;"+t.inserts()) {
		return false
	}
	_ = sleep.For(ctx, rig.Between(w.dice, 50*time.Millisecond, 2*time.Second))
	return w.exec(ctx, end)
}

func (w *writer) exec(ctx context.Context, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return false
		}
		w.conn = conn
	}
	_, err := w.conn.ExecContext(ctx, text)
	return err == nil
}

// drop closes the connection, so that the server rolls back its open transaction.
func (w *writer) drop() {
	if w.conn != nil {
		_ = w.conn.Raw(func(any) error { return driver.ErrBadConn }) // not back into the pool
		_ = w.conn.Close()
		w.conn = nil
	}
}

// fillScript stores a value only while the lease holds the reader's token.
var fillScript = redis.NewScript(`if redis.call("GET", KEYS[2]) == ARGV[1] then
  redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
  return 1
end
return 0`)

// send starts a reader that missed before the transaction commits. It takes the lease, loads the
// old value, and stores it repeatedly for as long as its lease allows. This is the worst reader
// that a protocol can allow.
func (w *writer) send(ctx context.Context, t transaction) {
	select {
	case w.readers <- struct{}{}:
	default:
		return // there are enough
	}
	cache, key, token := w.stage.cache(), t.keys()[0], fmt.Sprint("reader ", t.id)
	lease := "lock:fill:{" + key + "}"
	if taken, err := cache.SetNX(ctx, lease, token, 20*time.Second).Result(); !taken || err != nil {
		<-w.readers
		return
	}
	w.reading.Go(func() {
		defer func() { <-w.readers }()
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
			stored, err := fillScript.Run(ctx, cache, []string{key, lease}, token, "old, by "+token, keyLife.Milliseconds()).Int()
			if err != nil || stored == 0 {
				return
			}
		}
	})
}
