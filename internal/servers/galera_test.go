package servers

import (
	"database/sql"
	"testing"
)

// A killed node, also the one that founded the cluster, is a member again and has what it missed.
func TestGaleraNodeRejoins(t *testing.T) {
	t.Parallel()
	g, err := StartGalera(t.Context(), GaleraOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	open := func(i int) *sql.DB {
		db, err := sql.Open("mysql", g.Nodes[i].DSN(""))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	if _, err := open(0).ExecContext(t.Context(), "CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(0).ExecContext(t.Context(), "CREATE TABLE shop.rows (n INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	for i := range g.Nodes {
		if err := g.Nodes[i].Kill(); err != nil {
			t.Fatal(err)
		}
		other := (i + 1) % len(g.Nodes)
		// the two that are left agree after some seconds that the third is gone
		if _, err := g.Synced(t.Context(), other, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := open(other).ExecContext(t.Context(), "INSERT INTO shop.rows VALUES (?)", i); err != nil {
			t.Fatal(err)
		}
		if err := g.Rejoin(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := open(i).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop.rows").Scan(&n); err != nil || n != i+1 {
			t.Fatalf("node %d has %d rows (%v)", i, n, err)
		}
	}
}
