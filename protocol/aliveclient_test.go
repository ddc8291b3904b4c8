package protocol_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// askPause is how long an answer counts for a client with one connection.
const askPause = 250 * time.Millisecond

// An aliveClient reads one key over one connection, by the rules of "Where workers write" in
// docs/protocol.md. Nothing happens in the background: the test says when a reply is received.
type aliveClient struct {
	*testing.T
	addr    string
	pause   time.Duration // between questions; zero: each pipeline asks
	without int           // a rule of protocol/models/alive.pml that it breaks
	now     time.Duration // its clock
	between func()        // what happens after the first command of a pipeline

	conn      net.Conn
	in        *bufio.Reader
	waiting   []*reading // for the next pipeline
	pending   []*reading // without a reply, in their order; nil: the question
	got       []*reading // their values await the answer behind them, without rule 5
	questions int
	asked     time.Duration // when the latest question was sent
	fresh     bool          // none was sent over this connection
	usable    bool          // by the latest answer
	finished  func(*reading)
}

// A reading is one caller's.
type reading struct {
	began  time.Duration
	value  string     // empty: it loads
	behind bool       // the question is behind it, without rule 5
	joined []*reading // later callers, without rule 1
}

// dial connects again, and sends again what has no reply, as libraries do. When it returns, the
// proxy has chosen the server.
func (c *aliveClient) dial() {
	c.Helper()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.in = connect(c.T, c.addr)
	c.send("PING\r\n")
	_ = reply(c.T, c.in)
	if c.without != 2 {
		c.fresh, c.usable = true, false
	}
	for _, r := range c.pending {
		c.write(r)
	}
}

func connect(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}

// begin starts a caller.
func (c *aliveClient) begin() *reading {
	r := &reading{began: c.now}
	if n := len(c.pending); c.without == 1 && n > 0 {
		c.pending[n-1].joined = append(c.pending[n-1].joined, r)
	} else {
		c.waiting = append(c.waiting, r)
	}
	return r
}

// flush sends a pipeline for all callers that wait.
func (c *aliveClient) flush() {
	c.Helper()
	pipeline := c.waiting
	c.waiting = nil
	if c.pause == 0 || c.fresh || c.now-c.asked > c.pause && c.without != 3 {
		c.asked, c.fresh, c.questions = c.now, false, c.questions+1
		at := 0
		if c.without == 5 {
			at = len(pipeline)
			for _, r := range pipeline {
				r.behind = true
			}
		}
		pipeline = slices.Insert(pipeline, at, nil)
	}
	for i, r := range pipeline {
		c.write(r)
		c.pending = append(c.pending, r)
		if i == 0 && c.between != nil {
			c.between()
		}
	}
}

const question = "TIME\r\nHGET unstale:alive shop\r\n"

func (c *aliveClient) write(r *reading) {
	c.Helper()
	if r == nil {
		c.send(question)
	} else {
		c.send("GET k\r\n")
	}
}

func (c *aliveClient) send(commands string) {
	c.Helper()
	_, err := io.WriteString(c.conn, commands)
	testenv.Must(c, err)
}

// receive takes the next reply.
func (c *aliveClient) receive() {
	c.Helper()
	r := c.pending[0]
	if r == nil {
		a := answerOf(c.T, c.in)
		c.judge(a)
		for _, r := range c.got {
			c.finish(r)
		}
		c.got, c.pending = nil, c.pending[1:]
		return
	}
	r.value = reply(c.T, c.in)
	if c.pending = c.pending[1:]; r.behind {
		c.got = append(c.got, r)
	} else {
		c.finish(r)
	}
}

// finish uses a value, or not.
func (c *aliveClient) finish(r *reading) {
	if !c.usable {
		r.value = ""
	}
	c.finished(r)
	for _, later := range r.joined {
		later.value = r.value
		c.finished(later)
	}
}

// judge evaluates an answer. After an old one, a new connection must get the same.
func (c *aliveClient) judge(a answer) {
	c.Helper()
	if c.without == 4 {
		c.asked = c.now
	}
	if c.usable = a.young() || c.without == 6; c.usable {
		return
	}
	conn, in := connect(c.T, c.addr)
	defer conn.Close()
	_, err := io.WriteString(conn, question)
	testenv.Must(c, err)
	other := answerOf(c.T, in)
	c.usable = !other.young() && (other.field == a.field || c.without == 7)
}

// An answer to the question.
type answer struct {
	now   int64 // the time of the server, in microseconds
	field string
}

func answerOf(t *testing.T, in *bufio.Reader) (a answer) {
	t.Helper()
	var seconds, micros int64
	_, err := fmt.Sscan(reply(t, in), &seconds, &micros)
	testenv.Must(t, err)
	return answer{seconds*1_000_000 + micros, reply(t, in)}
}

func (a answer) young() bool {
	alive, err := protocol.ParseAlive(a.field)
	return err == nil && a.now-alive.Time <= protocol.AliveLife
}

// reply reads a text, a number, or the parts of a list with spaces between them. Nil is empty.
func reply(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	line, err := in.ReadString('\n')
	testenv.Must(t, err)
	kind, line := line[0], strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(line) // zero of a text
	switch {
	case kind == '$' && n >= 0:
		text := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(in, text)
		testenv.Must(t, err)
		return string(text[:n])
	case kind == '*':
		parts := make([]string, n)
		for i := range parts {
			parts[i] = reply(t, in)
		}
		return strings.Join(parts, " ")
	case kind == '$':
		return ""
	}
	return line
}
