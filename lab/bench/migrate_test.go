package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// Each step that alters a big table is measured, and the others are applied.
func TestMigrate(t *testing.T) {
	t.Parallel()
	cfg := Config{RedisURL: testenv.Redis(t).URL, MySQLDSN: testenv.MySQL(t).DSN, Scale: 1000}.WithDefaults()
	s, err := openShop(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	step := func(file, table, statement string) alteration {
		return alteration{file, table, func(ctx context.Context) error { _, err := s.db.ExecContext(ctx, statement); return err }}
	}
	r, err := measure(t.Context(), cfg, s, []alteration{
		step("1.sql", "cache_outbox_dead", "ALTER TABLE cache_outbox_dead ADD INDEX one (entity)"),
		step("2.sql", "cache_outbox_workers", "ALTER TABLE cache_outbox_workers ADD COLUMN two INT NULL"),
		step("3.sql", "cache_outbox_dead", "ALTER TABLE cache_outbox_dead ADD INDEX three (error(9), entity)"),
		step("4.sql", "", "CREATE TABLE cache_outbox_four (id INT PRIMARY KEY)"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, measured := range map[string]bool{"1.sql": true, "2.sql": false, "3.sql": true, "4.sql": false} {
		if p, _ := r.Details[file].(pair); (p.Ours > 0 && p.Floor > 0) != measured {
			t.Errorf("%s: %+v", file, r.Details[file])
		}
	}
	var left int
	if err := s.db.QueryRow("SELECT COUNT(two) + (SELECT COUNT(*) FROM cache_outbox_dead) + (SELECT COUNT(*) FROM cache_outbox_four) FROM cache_outbox_workers").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
	if r.Ours <= 0 || r.Floor <= 0 {
		t.Errorf("%+v", r)
	}
	if r, err := measure(t.Context(), cfg, s, []alteration{step("5.sql", "cache_outbox_workers", "DO 0")}); !errors.Is(err, errNothingToMeasure) {
		t.Errorf("%+v, %v", r, err)
	}
}
