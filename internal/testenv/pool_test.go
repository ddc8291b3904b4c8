package testenv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// pools returns two pools of the same server, as in two test binaries.
func pools(t *testing.T, databases string) (a, b *databasePool) {
	t.Helper()
	r := OwnRedis(t, "--databases", databases)
	var both [2]*databasePool
	for i := range both {
		p, err := newDatabasePool(t.Context(), r.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.close() })
		both[i] = p
	}
	return both[0], both[1]
}

func take(t *testing.T, p *databasePool, owner string) int {
	t.Helper()
	number, err := p.take(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func TestPoolLendsEachNumberOnce(t *testing.T) {
	t.Parallel()
	a, b := pools(t, "4")
	seen := map[int]bool{0: true} // the URL's own database is never lent
	for _, p := range []*databasePool{a, b, a} {
		number := take(t, p, "owner")
		if seen[number] {
			t.Fatalf("database %d is lent twice", number)
		}
		seen[number] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.take(ctx, "owner"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "all 3 of ") {
		t.Fatalf("take of a fourth = %v, want a deadline", err)
	}
}

func TestPoolWaitsForAFreeNumber(t *testing.T) {
	t.Parallel()
	a, b := pools(t, "2")
	number := take(t, a, "first")
	if err := a.client(number).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	taken := make(chan int)
	go func() {
		n, _ := b.take(t.Context(), "second")
		taken <- n
	}()
	if err := a.give(t.Context(), number, "first"); err != nil {
		t.Fatal(err)
	}
	if got := <-taken; got != number {
		t.Fatalf("took database %d, want %d", got, number)
	}
	if n, err := b.client(number).DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("database has %d keys, %v, want none", n, err)
	}
	if err := a.give(t.Context(), number, "first"); err == nil {
		t.Fatal("a database was given back by one who no longer had it")
	}
}

func TestPoolLeavesForeignDataAlone(t *testing.T) {
	t.Parallel()
	a, _ := pools(t, "3")
	if err := a.client(1).Set(t.Context(), "somebody's", "data", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if number := take(t, a, "owner"); number != 2 {
		t.Fatalf("took database %d, want 2", number)
	}
	if err := a.client(1).Get(t.Context(), "somebody's").Err(); err != nil {
		t.Fatal(err)
	}
}

func TestPoolTakesOverWhatAKilledTestHad(t *testing.T) {
	t.Parallel()
	a, b := pools(t, "2")
	number := take(t, a, "killed")
	if err := a.client(number).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	lease, _ := a.marks(number)
	if ttl, err := a.home.PTTL(t.Context(), lease).Result(); err != nil || ttl <= 0 || ttl > leaseTime {
		t.Fatalf("lease ends in %s, %v", ttl, err)
	}
	if err := a.home.Del(t.Context(), lease).Err(); err != nil { // as its end does
		t.Fatal(err)
	}
	if got := take(t, b, "next"); got != number {
		t.Fatalf("took database %d, want %d", got, number)
	}
	if n, err := b.client(number).DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("database has %d keys, %v, want none", n, err)
	}
}

func TestPoolNamesADatabase(t *testing.T) {
	t.Parallel()
	r := OwnRedis(t, "--requirepass", "a/b")
	p, err := newDatabasePool(t.Context(), "redis://:a%2Fb@"+r.Addr()+"/3?db=2&protocol=2")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if got, want := p.name(7), "redis://:a%2Fb@"+r.Addr()+"/7?protocol=2"; got != want {
		t.Fatalf("name = %s, want %s", got, want)
	}
}
