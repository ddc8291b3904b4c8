//go:build vitess

package vitess_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/outbox"
)

const (
	products = 400
	writers  = 6
	readers  = 2
)

// faults are what breaks in each round, in this order.
var faults = []string{"vtcombo killed", "worker killed", "mysqld killed", "worker frozen", "worker killed"}

// The shop writes and reads through VTGate, and a worker runs on each shard. VTGate, MySQL and the
// workers are killed. UNSTALE_VITESS_ROUNDS is how often each fault happens. Default 3.
func TestNothingIsLost(t *testing.T) {
	w := newWorld(t, "--enable-consolidator-replicas")
	p := &play{world: w, truth: map[int64]fate{}}
	for id := range products {
		for _, table := range []string{"products", "captured"} {
			w.exec(w.shop, "INSERT INTO "+table+" (id, price) VALUES (?, 0)", id)
		}
	}
	var sources []string
	for i, s := range w.shards {
		source, err := outbox.Source(t.Context(), s.db)
		w.must(err)
		sources = append(sources, source)
		fleet, err := rig.New(w.binary, t.TempDir(), mapText, append(w.env[1:], "MYSQL_DSN="+s.dsn, "UNSTALE_CLAIM_TIMEOUT=3s", "UNSTALE_RETRY_DELAY=100ms"))
		w.must(err)
		fleet.Prefix = fmt.Sprint("shard-", i, "-")
		t.Cleanup(fleet.KillAll)
		w.must(fleet.Start(100))
		p.fleets = append(p.fleets, fleet)
	}
	for _, memory := range []cache.Memory{{Size: products, Sources: sources}, {}} {
		c, err := cache.New(cache.Config{Redis: w.cache, NotFound: sql.ErrNoRows, Memory: memory})
		w.must(err)
		t.Cleanup(func() { _ = c.Close() })
		p.caches = append(p.caches, c)
	}
	rounds := 3
	if text := os.Getenv("UNSTALE_VITESS_ROUNDS"); text != "" {
		_, err := fmt.Sscan(text, &rounds)
		w.must(err)
	}
	for range rounds {
		p.round()
		p.judge()
		t.Logf("proven: %d committed and %d rolled back, of them %d with unknown outcome; %d reads; %d faults; no row lost, no key stale",
			p.committed, p.rolledBack, p.unknown, p.reads.Load(), p.faults)
		if t.Failed() {
			return
		}
	}
	for i, f := range p.fleets {
		if n := f.Said("databases conflict in redis"); n > 0 {
			t.Errorf("worker of shard %d reports %d conflicts", i, n)
		}
		w.unstale(w.shards[i].dsn, "doctor", "--check", "databases")
		w.unstale(w.shards[i].dsn, "status")
	}
	testenv.Eventually(t, "heartbeats of both shards arrive", func() bool { return p.caches[0].Healthy() == nil })
	if s := p.caches[0].Statistics(); s.L1Hits == 0 {
		t.Errorf("the memory was not used: %+v", s)
	}
}

// A fate is what the writer knows of a transaction.
type fate int

const (
	unsure    fate = iota // COMMIT failed: either
	succeeded             // COMMIT was acknowledged
	gaveUp                // ROLLBACK, or an error before COMMIT
)

type play struct {
	*world
	fleets []*rig.Fleet
	caches []*cache.Cache // with memory, and without

	mu    sync.Mutex
	last  int64
	truth map[int64]fate // of the transactions since the last check

	reads                                  atomic.Int64
	committed, rolledBack, unknown, faults int
}

// round lets the shop write and read while everything breaks once, and repairs it.
func (p *play) round() {
	ctx, stop := context.WithCancel(p.Context())
	var shop sync.WaitGroup
	for range writers {
		shop.Go(func() {
			for ctx.Err() == nil {
				p.write()
			}
		})
	}
	for range readers {
		shop.Go(func() {
			for ctx.Err() == nil {
				p.read(context.WithoutCancel(ctx))
			}
		})
	}
	for _, fault := range faults {
		p.must(sleep.For(ctx, time.Duration(1000+rand.IntN(2000))*time.Millisecond))
		p.fault(ctx, fault)
		p.faults++
	}
	p.must(sleep.For(ctx, 2*time.Second))
	stop()
	shop.Wait()
}

func (p *play) fault(ctx context.Context, name string) {
	hold := time.Duration(rand.IntN(1500)) * time.Millisecond
	switch name {
	case "vtcombo killed":
		p.must(p.vitess.Kill())
		p.must(sleep.For(ctx, hold))
		p.must(p.vitess.Restart(ctx))
	case "mysqld killed":
		p.must(p.mysql.Kill())
		p.must(sleep.For(ctx, hold))
		p.must(p.mysql.Restart(ctx))
	case "worker frozen":
		f := p.fleets[rand.IntN(2)]
		m := f.Pick(0)
		p.must(m.Signal(ctx, syscall.SIGSTOP, false))
		p.must(sleep.For(ctx, 4*time.Second+hold)) // longer than the claim timeout
		p.must(m.Signal(ctx, syscall.SIGCONT, false))
		f.Back(m)
	default:
		f := p.fleets[rand.IntN(2)]
		p.must(f.Pick(0).Signal(ctx, syscall.SIGKILL, true))
		p.must(sleep.For(ctx, hold))
		p.must(f.Start(100))
	}
}

var errChange = errors.New("the customer has changed his mind")

func (p *play) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

func (p *play) note(tx int64, f fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.truth[tx] = f
}

// write sets a key, and runs a transaction that has to unlink it. Servers may be away at any time.
func (p *play) write() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	n, id := p.next(), rand.IntN(products)
	if p.cache.Set(ctx, fmt.Sprint("shop:tx:", n), "old", 0).Err() != nil {
		return
	}
	kind := rand.IntN(10)
	err := outbox.InTx(ctx, p.shop, func(tx *sql.Tx) error {
		table := "products"
		if kind < 3 {
			table = "captured" // a trigger inserts the row
		}
		if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET price = ? WHERE id = ?", n, id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO ledger (product, tx) VALUES (?, ?)", id, n); err != nil {
			return err
		}
		row := outbox.Invalidation{Entity: "product", ID: fmt.Sprint(id), Params: map[string]any{"n": n}}
		if kind == 9 {
			late := row
			late.NotBefore = time.Now().Add(time.Second)
			if err := outbox.Enqueue(ctx, tx, late); err != nil {
				return err
			}
		}
		if kind >= 3 {
			if err := outbox.Enqueue(ctx, tx, row); err != nil {
				return err
			}
		}
		if kind == 8 {
			return errChange
		}
		return nil
	})
	switch {
	case err == nil:
		p.note(n, succeeded)
	case errors.Is(err, outbox.ErrCommit):
		p.note(n, unsure)
	default:
		p.note(n, gaveUp)
		if !errors.Is(err, errChange) {
			_ = sleep.For(ctx, 50*time.Millisecond)
		}
	}
}

// read reads a product through the cache.
func (p *play) read(ctx context.Context) {
	id := rand.IntN(products)
	_, err := cache.Fetch(ctx, p.caches[rand.IntN(2)], fmt.Sprint("shop:product:", id), p.load(id), cache.Moderate)
	if err != nil {
		_ = sleep.For(ctx, 50*time.Millisecond)
		return
	}
	p.reads.Add(1)
	_ = sleep.For(ctx, time.Millisecond) // the processors are for the writers
}

func (p *play) load(id int) cache.Loader[int64] {
	return func(ctx context.Context) (price int64, err error) {
		err = p.shop.QueryRowContext(ctx, "SELECT price FROM products WHERE id = ?", id).Scan(&price)
		return price, err
	}
}

// judge waits until no row is left, and compares Redis with the shards.
func (p *play) judge() {
	p.Helper()
	const left = "SELECT (SELECT COUNT(*) FROM cache_outbox) + (SELECT COUNT(*) FROM cache_outbox_delayed)"
	committed, prices := map[int64]bool{}, map[int]int64{}
	for _, s := range p.shards {
		p.must(rig.Wait(p.Context(), 2*time.Minute, 100*time.Millisecond, func() (bool, error) { return p.count(s.db, left) == 0, nil }))
		if n := p.count(s.db, "SELECT COUNT(*) FROM cache_outbox_dead"); n > 0 {
			p.Errorf("%d dead letters on shard %s", n, s.name)
		}
		for tx := range p.pairs(s.db, "SELECT tx, 0 FROM ledger") {
			committed[tx] = true
		}
		for id, price := range p.pairs(s.db, "SELECT id, price FROM products") {
			prices[int(id)] = price
		}
		p.exec(s.db, "DELETE FROM ledger")
	}
	if len(prices) != products {
		p.Errorf("%d products", len(prices))
	}
	for tx, f := range p.truth {
		key := fmt.Sprint("shop:tx:", tx)
		there, err := p.cache.Exists(p.Context(), key).Result()
		p.must(err)
		switch {
		case f == unsure:
			p.unknown++
		case committed[tx] != (f == succeeded):
			p.Errorf("transaction %d: fate %d, and committed is %t", tx, f, committed[tx])
		}
		switch {
		case !committed[tx]:
			p.rolledBack++
			if there == 0 {
				p.Errorf("transaction %d was rolled back, and its key is gone", tx)
			}
		case there > 0:
			p.Errorf("LOST: transaction %d was committed, and its key is there", tx)
		default:
			p.committed++
		}
		p.must(p.cache.Del(p.Context(), key).Err())
	}
	clear(p.truth)
	for id, price := range prices {
		for _, c := range p.caches {
			none := errors.New("none")
			got, err := cache.Fetch(p.Context(), c, fmt.Sprint("shop:product:", id), func(context.Context) (int64, error) { return 0, none }, cache.Moderate)
			if err == nil && got != price {
				p.Errorf("STALE: product %d costs %d, and %d in the cache", id, price, got)
			} else if err != nil && !errors.Is(err, none) {
				p.Error(err)
			}
		}
	}
	for _, f := range p.fleets {
		p.must(f.Alive())
	}
	if p.Failed() {
		for _, f := range p.fleets {
			p.Log(f.Tails())
		}
		log, _ := os.ReadFile(p.vitess.Log())
		lines := strings.Split(string(log), "\n")
		p.Log(strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// pairs reads two numbers of each row.
func (p *play) pairs(db *sql.DB, query string) map[int64]int64 {
	p.Helper()
	rows, err := db.QueryContext(p.Context(), query)
	p.must(err)
	defer rows.Close()
	all := map[int64]int64{}
	for rows.Next() {
		var a, b int64
		p.must(rows.Scan(&a, &b))
		all[a] = b
	}
	p.must(rows.Err())
	return all
}
