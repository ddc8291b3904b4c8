package keyspace

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/credentials"
)

// refusals are the beginnings of the answers of a server that refuses a connection and hangs up: in
// protected mode, and at maxclients. The client library does not return such an answer. It assumes
// an old server that does not know HELLO, and then reports only that the connection is gone.
var refusals = map[string]string{
	"-DENIED ":                   StateProtected,
	"-ERR max number of clients": StateMaxClients,
}

// explain returns a connection whose errors are a *refusedError if the server has refused it.
func explain(conn net.Conn) net.Conn {
	c := &refusedConn{Conn: conn}
	if raw, ok := conn.(syscall.Conn); ok {
		return &rawRefusedConn{c, raw}
	}
	return c
}

// A refusedConn keeps the server's first answer if that is a refusal. The client library has this
// answer before it lets goroutines share the connection, so the fields need no lock.
type refusedConn struct {
	net.Conn
	answered bool
	refused  *refusedError
}

// A rawRefusedConn is a refusedConn without TLS. SyscallConn is how the client library detects that
// the server has closed an idle connection.
type rawRefusedConn struct {
	*refusedConn
	raw syscall.Conn
}

func (c *rawRefusedConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

func (c *refusedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(b[:n])
	return n, c.because(err)
}

func (c *refusedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

func (c *refusedConn) note(answer []byte) {
	if c.answered || len(answer) == 0 {
		return
	}
	c.answered = true
	for beginning, state := range refusals {
		if text := string(answer); strings.HasPrefix(text, beginning) {
			text, _, _ = strings.Cut(text[1:], "\r\n")
			text, _, _ = strings.Cut(text, ". ") // six more sentences of advice
			c.refused = &refusedError{text, state}
		}
	}
}

func (c *refusedConn) because(err error) error {
	switch {
	case err == nil:
		return nil
	case c.refused != nil:
		return c.refused
	case c.answered:
		return err
	}
	cure := credentials.TLSCure(err, "REDIS_TLS_")
	if cure == "" && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		cure = "the server closed a new connection: if its port is for TLS, use rediss:// or REDIS_TLS=true"
		if _, secure := c.Conn.(*tls.Conn); secure {
			cure = "the server closed a new connection: if it refuses the client's certificate, name another one in REDIS_TLS_CERT_FILE"
		} else if isProxy(c.RemoteAddr()) {
			cure = "a proxy, such as twemproxy, answers PING and closes the connection at HELLO: it does not pass on SCAN, PUBLISH and other commands; connect to Redis itself"
		}
	}
	if cure == "" {
		return err
	}
	return &refusedError{fmt.Sprintf("%v; %s", err, cure), StateNetwork}
}

// probeLimit bounds isProxy.
const probeLimit = 200 * time.Millisecond

// isProxy reports whether a server that closed a new connection answers PING, and then closes that
// connection at HELLO too. Redis 6 or later does not, and neither does a port for TLS.
func isProxy(at net.Addr) bool {
	conn, err := net.DialTimeout(at.Network(), at.String(), probeLimit)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeLimit)) // a failure shows in the reads
	answer := make([]byte, 64)
	for i, command := range [...]string{"*1\r\n$4\r\nPING\r\n", "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"} {
		_, _ = conn.Write([]byte(command))
		if _, err = conn.Read(answer); err != nil || !strings.ContainsRune("+-", rune(answer[0])) {
			return i > 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	return false
}

// A refusedError is the reason that a server gave when it refused a connection. It does not wrap
// the network's error, because the client library would return that one instead. It is not an error
// reply either: the client library would keep the connection.
type refusedError struct{ reason, state string }

func (e *refusedError) Error() string { return e.reason }

// Is makes the client library try again after a connection that was closed.
func (e *refusedError) Is(target error) bool { return target == io.EOF && e.state == StateNetwork }
