package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// Race reports a peer that empties its table without doing all of the work, and one that gives up.
func TestRaceRefuses(t *testing.T) {
	t.Parallel()
	fill := func(ctx context.Context, g *Ground, _ int) error {
		_, err := g.shop.db.ExecContext(ctx, "CREATE TABLE peer SELECT 1 AS id")
		return err
	}
	empty := func(ctx context.Context, g *Ground) error {
		_, err := g.shop.db.ExecContext(ctx, "DELETE FROM peer")
		if err == nil {
			<-ctx.Done()
		}
		return err
	}
	for name, c := range map[string]struct {
		drain func(context.Context, *Ground) error
		want  string
	}{
		"idle": {empty, "its table is empty, but 20 of 20 keys and leases are left"},
		"lazy": {func(ctx context.Context, g *Ground) error {
			if err := g.Invalidate(ctx, g.ID(3), g.ID(4)); err != nil {
				return err
			}
			return empty(ctx, g)
		}, "its table is empty, but 16 of 20 keys and leases are left"},
		"broken": {func(context.Context, *Ground) error { return errors.New("no more") }, "it ended before its table was empty: no more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{RedisURL: testenv.Redis(t).URL, MySQLDSN: testenv.MySQL(t).DSN, Runs: 1, Scale: 100}
			_, err := Race(t.Context(), cfg, 10, Peer{Name: name, Table: "peer", Fill: fill, Drain: c.drain})
			if want := name + ": " + c.want; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, wanted %q", err, want)
			}
		})
	}
}
