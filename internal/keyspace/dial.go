package keyspace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/redisclient"
)

// dialer connects within a time: with dial if it is given, which then handles TLS, else with TLS
// unless config is nil.
//
// A dial that fails returns a FailedConn. The caller decides how often to retry.
func dialer(timeout time.Duration, dial dialFunc, config *tls.Config) dialFunc {
	plain := &net.Dialer{Timeout: timeout}
	secure := dial != nil || config != nil
	switch {
	case dial != nil:
	case config != nil:
		dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
	default:
		dial = plain.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout) // TLS' handshake included
		defer cancel()
		conn, err := dial(ctx, network, addr)
		cure := credentials.TLSCure(err, "REDIS_TLS_")
		var connect *net.OpError
		switch { // Not wrapped: the client library would return the wrapped error alone.
		case cure != "":
			err = fmt.Errorf("%v; %s", err, cure)
		case secure && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &connect):
			err = &refusedError{fmt.Sprintf("%v in the TLS handshake; if the port is without TLS, use redis:// and no setting of TLS", err), StateTimeout}
		case secure && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
			err = fmt.Errorf("%v in the TLS handshake; a server at maxclients hangs up there: raise maxclients, or end clients that CLIENT LIST shows", err)
		}
		if err != nil {
			return redisclient.FailedConn{Err: err}, nil
		}
		return explain(conn), nil
	}
}
