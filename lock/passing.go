package lock

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/mysqlerr"
)

// passingReplies are how the replies of Redis begin that end without a change of the account or the
// settings.
var passingReplies = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF",
	"BUSY", "OOM", "ERR max number of clients"}

// passing reports whether another attempt may succeed without a change of the account or the
// settings.
func passing(err error) bool {
	if q := (*quorumError)(nil); errors.As(err, &q) && len(q.failed) > 0 {
		return !slices.ContainsFunc(q.failed, func(one error) bool { return !passing(one) })
	}
	if credentials.TLSCure(err, "") != "" || errors.Is(err, ErrClosed) || errors.Is(err, ErrGuardOpen) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if mysqlerr.Number(err) != 0 {
		return mysqlerr.IsPassing(err)
	}
	if reply := redis.Error(nil); errors.As(err, &reply) {
		return slices.ContainsFunc(passingReplies, func(begin string) bool {
			// within a script, before Redis 7
			return strings.HasPrefix(reply.Error(), begin) || strings.Contains(reply.Error(), ": -"+begin)
		})
	}
	if network := net.Error(nil); errors.As(err, &network) {
		return true
	}
	return slices.ContainsFunc([]error{context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn,
		mysql.ErrInvalidConn, redis.ErrPoolTimeout, net.ErrClosed, errUnreachable, errClock, ErrLost},
		func(one error) bool { return errors.Is(err, one) })
}
