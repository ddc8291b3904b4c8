package maintenance_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
)

// A server that is away is asked twice a second or so; one that refuses is asked less and less,
// down to every five seconds.
func TestOutagePause(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("settle rows: %w", &mysql.MySQLError{Number: 1114, Message: "The table 'cache_outbox_journal' is full"})
	for _, c := range []struct {
		err  error
		n    int
		want time.Duration
	}{
		{mysql.ErrInvalidConn, 1, 200 * time.Millisecond}, {mysql.ErrInvalidConn, 100, 400 * time.Millisecond},
		{&mysql.MySQLError{Number: 1053}, 100, 400 * time.Millisecond},
		{full, 1, 200 * time.Millisecond}, {full, 4, 1600 * time.Millisecond}, {full, 100, 5 * time.Second},
		{&mysql.MySQLError{Number: 1142}, 100, 5 * time.Second},
		{&keyspace.Outage{State: keyspace.StateLoading, Err: errors.New("LOADING")}, 100, 400 * time.Millisecond},
		{&keyspace.Outage{State: keyspace.StateNoPerm, Err: errors.New("NOPERM")}, 100, 5 * time.Second},
	} {
		if got := maintenance.Pause(c.err, c.n); got < c.want*9/10 || got > c.want*11/10 {
			t.Errorf("after failure %d of %v: %v, wanted about %v", c.n, c.err, got, c.want)
		}
	}
}
