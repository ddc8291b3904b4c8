package examples

import (
	"context"
	"database/sql"
	"testing"

	"github.com/robfig/cron/v3"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// Three replicas have the job, and one of them runs it at each time of its schedule. A run notes
// the time before it, which no other one may note.
func TestAddJob(t *testing.T) {
	t.Parallel()
	client, env := clientAt(t, testenv.OwnRedis(t).Addr()), testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE jobs (name VARCHAR(50) PRIMARY KEY, last BIGINT NOT NULL DEFAULT 0)", "INSERT INTO jobs (name) VALUES ('report')",
		"CREATE TABLE runs (id INT AUTO_INCREMENT PRIMARY KEY, before_it BIGINT NOT NULL)")
	report := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO runs (before_it) SELECT last FROM jobs WHERE name = 'report'")
		return err
	}
	for range 3 { // replicas
		locks, err := NewLocks(client, env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		c := cron.New(cron.WithSeconds())
		// a busy machine takes more than the default Timeout
		failed := func(err error) { t.Log(err) }
		if err := AddJob(c, locks, env.DB, "* * * * * *", "report", report, failed); err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer func() { <-c.Stop().Done() }()
	}
	var runs, times int
	testenv.Eventually(t, "three runs", func() bool {
		if err := env.DB.QueryRow("SELECT COUNT(*), COUNT(DISTINCT before_it) FROM runs").Scan(&runs, &times); err != nil {
			t.Fatal(err)
		}
		return runs >= 3
	})
	if runs != times {
		t.Errorf("%d runs for %d times", runs, times)
	}
}
