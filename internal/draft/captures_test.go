package draft

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/invalidation"
)

// A foreign key is left out once, with all of its events.
func TestEventsOfOneKeyAreLeftOutTogether(t *testing.T) {
	t.Parallel()
	e := &entity{}
	ofDelete, ofUpdate := invalidation.IgnoredCascade{Key: "k", Delete: true}, invalidation.IgnoredCascade{Key: "k", Update: true}
	other := invalidation.IgnoredCascade{Key: "other", Update: true}
	for _, c := range []struct {
		one invalidation.IgnoredCascade
		is  bool
	}{{ofDelete, true}, {ofDelete, false}, {other, true}, {ofUpdate, true}, {ofDelete, false}} {
		if got := e.ignore(c.one); got != c.is {
			t.Errorf("%+v: %v", c.one, got)
		}
	}
	if want := []invalidation.IgnoredCascade{{Key: "k", Delete: true, Update: true}, other}; !slices.Equal(e.ignored, want) {
		t.Errorf("left out: %+v", e.ignored)
	}
}

// A lost connection or a busy server is no reason to leave a table out.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		mysql.ErrInvalidConn: true, driver.ErrBadConn: true, context.Canceled: true, context.DeadlineExceeded: true,
		&mysql.MySQLError{Number: 1317}: true, &mysql.MySQLError{Number: 1146}: false, errors.New("no"): false,
	} {
		if got := isPassing(fmt.Errorf("read the columns: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
