package testenv_test

import (
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMySQLIsEmptyAndOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := testenv.MySQL(t), testenv.MySQL(t)
	if a.Name == b.Name {
		t.Fatalf("two databases are called %s", a.Name)
	}
	if _, err := a.DB.ExecContext(t.Context(), "CREATE TABLE t (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DB.ExecContext(t.Context(), "CREATE TABLE t (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
}

func TestRedisIsEmptyAndOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := testenv.Redis(t), testenv.Redis(t)
	if err := a.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("DBSIZE = %d, %v, want an empty database", n, err)
	}
}
