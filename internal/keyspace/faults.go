package keyspace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/protocol"
)

// The states of an Outage. The set is closed, so it can be the label of a metric.
const (
	StateNetwork     = "network"     // refused, reset, unreachable, no node, no sentinel
	StateTimeout     = "timeout"     // no answer, or no free connection, in time
	StateCanceled    = "canceled"    // the caller's context was canceled
	StateClosed      = "closed"      // the Keyspace was closed
	StateLoading     = "loading"     // LOADING
	StateReadOnly    = "readonly"    // READONLY: it is a replica
	StateMasterDown  = "masterdown"  // MASTERDOWN
	StateOOM         = "oom"         // OOM: maxmemory is reached
	StateClusterDown = "clusterdown" // CLUSTERDOWN
	StateMoving      = "moving"      // MOVED, ASK or TRYAGAIN that redirections did not settle
	// MOVED or CROSSSLOT: it is a Cluster, but the URL is for a single server
	StateWrongMode = "wrongmode"
	StateBusy      = "busy" // BUSY: a script runs
	StateAuth      = "auth" // NOAUTH, WRONGPASS
	// NOPERM: the user may not run the command, or not use the channel
	StateNoPerm     = "noperm"
	StateMaxClients = "maxclients" // max number of clients reached
	StateProtected  = "protected"  // DENIED: protected mode
	StateMisconf    = "misconf"    // MISCONF: Redis cannot persist and refuses writes
	// NOREPLICAS, or too few have acknowledged: see Options.WaitReplicas
	StateNoReplicas = "noreplicas"
	StateError      = "error" // any other error reply
)

// States lists the State constants.
func States() []string {
	return []string{
		StateNetwork, StateTimeout, StateCanceled, StateClosed, StateLoading, StateReadOnly, StateMasterDown, StateOOM,
		StateClusterDown, StateMoving, StateWrongMode, StateBusy, StateAuth, StateNoPerm, StateMaxClients,
		StateProtected, StateMisconf, StateNoReplicas, StateError,
	}
}

// replyStates maps the first word of an error reply, which is all that Redis offers as an error
// code.
var replyStates = map[string]string{
	"LOADING":     StateLoading,
	"READONLY":    StateReadOnly,
	"MASTERDOWN":  StateMasterDown,
	"OOM":         StateOOM,
	"CLUSTERDOWN": StateClusterDown,
	"MOVED":       StateMoving,
	"ASK":         StateMoving,
	"TRYAGAIN":    StateMoving,
	"CROSSSLOT":   StateWrongMode,
	"BUSY":        StateBusy,
	"NOAUTH":      StateAuth,
	"WRONGPASS":   StateAuth,
	"NOPERM":      StateNoPerm,
	"MISCONF":     StateMisconf,
	"NOREPLICAS":  StateNoReplicas,
}

// hints are the fixes of states that do not end without an action.
var hints = map[string]string{
	StateAuth:       "check the user and the password of the redis url",
	StateNoPerm:     "`unstale acl` prints all permissions",
	StateWrongMode:  "the server is a cluster: use redis+cluster://",
	StateProtected:  "set a password for the server's users, or restrict bind and then set protected-mode no",
	StateMaxClients: "raise the server's maxclients, or end clients that CLIENT LIST shows",
	StateOOM:        "raise maxmemory if the host has the memory; set an eviction policy only if everything in this Redis may be evicted",
}

// An Outage means that Redis did not answer, or that its answer is not the fault of a row. Wait and
// repeat the call.
type Outage struct {
	Err   error
	State string // one of the State constants
}

func (o *Outage) Error() string {
	text := fmt.Sprintf("redis outage (%s): %v", o.State, o.Err)
	if hint := hints[o.State]; hint != "" {
		text += "; " + hint
	}
	return text
}

func (o *Outage) Unwrap() error { return o.Err }

// outage makes an Outage of an error that is not one yet.
func outage(err error) *Outage {
	if already, ok := errors.AsType[*Outage](err); ok {
		return already
	}
	return &Outage{Err: err, State: stateOf(err)}
}

func stateOf(err error) string {
	if redis.IsMaxClientsError(err) {
		return StateMaxClients
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.state
	}
	if word := firstWord(err); word != "" {
		if state, ok := replyStates[word]; ok {
			return state
		}
		return StateError
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return StateCanceled
	case errors.Is(err, redis.ErrClosed):
		return StateClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &timeout) && timeout.Timeout():
		return StateTimeout
	}
	return StateNetwork
}

// firstWord returns the code of an error reply, or "" where err is not one.
func firstWord(err error) string {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word
}

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
	c.classify(b[:n])
	return n, c.because(err)
}

func (c *refusedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

func (c *refusedConn) classify(answer []byte) {
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

// A Refusal means that Redis refuses one key (or one pattern is invalid), and will do so until an
// operator changes something: NOPERM about the key, WRONGTYPE.
type Refusal struct {
	Key string
	Err error
}

func (r *Refusal) Error() string { return fmt.Sprintf("redis refuses %q: %v", r.Key, r.Err) }

func (r *Refusal) Unwrap() error { return r.Err }

// A Failure is the reason why one target of Unlink is not unlinked.
type Failure struct {
	Index int   // of the target
	Err   error // a *Refusal, or in Cluster the *Outage of the target's master
}

// isRefusal reports whether an error reply concerns one key. It is called only for commands about
// keys, so never for PUBLISH.
//
// An unknown reply counts as an outage. If an outage counted as the fault of rows, every row would
// become a dead letter. If the fault of one key counts as an outage, the work stops visibly.
func isRefusal(err error) bool {
	word := firstWord(err)
	return word == "WRONGTYPE" || word == "NOPERM" && !isCommandDenied(err)
}

// isCommandDenied distinguishes a user who may not run the command at all, which is not the fault
// of a row, from one who may not access this key. Redis has one code for both, so only the text
// differs. This part of it is the same in every version since 6.0: "has no permissions to run the
// 'unlink' command".
func isCommandDenied(err error) bool {
	return strings.Contains(err.Error(), "permissions to run")
}

// A denial is a NOPERM with the missing rule. Redis reports only the kind of the rule.
type denial struct {
	err  error
	rule string // for ACL SETUSER
}

func (d *denial) Error() string { return fmt.Sprintf("%v; grant the redis user %s", d.err, d.rule) }

func (d *denial) Unwrap() error { return d.err }

// denials is a hook that finds out, from the command that was denied, which rule is missing.
type denials struct{}

func (denials) DialHook(next redis.DialHook) redis.DialHook { return next }

func (denials) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error { return explainDenial(next(ctx, c), c.Args()) }
}

func (denials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, c := range commands {
			if c.Err() != nil {
				c.SetErr(explainDenial(c.Err(), c.Args()))
			}
		}
		return err
	}
}

func explainDenial(err error, args []any) error {
	if known := (*denial)(nil); err == nil || firstWord(err) != "NOPERM" || errors.As(err, &known) {
		return err
	}
	if rule := missingRule(err.Error(), args); rule != "" {
		return &denial{err, rule}
	}
	return err
}

// missingRule returns "" if the rule is unknown.
func missingRule(reply string, args []any) string {
	if _, rest, found := strings.Cut(reply, "permissions to run the '"); found {
		command, _, _ := strings.Cut(rest, "'")
		return "+" + command
	}
	name := deniedName(args)
	switch {
	case name == "":
		return ""
	case strings.Contains(reply, "channel"):
		return "&" + name
	}
	for _, prefix := range []string{protocol.LeasePrefix, protocol.HoldPrefix, beaconPrefix, setPrefix, alivePrefix} {
		if strings.HasPrefix(name, prefix) {
			return "~" + prefix + "*"
		}
	}
	return "~" + name
}

// deniedName returns the name that a command is about. UNLINK names a key last, after its lease:
// see unlink. MEMORY USAGE and OBJECT FREQ name one after the second word.
func deniedName(args []any) string {
	if len(args) < 2 {
		return ""
	}
	at := 1
	switch strings.ToLower(fmt.Sprint(args[0])) {
	case "unlink", "memory", "object":
		at = len(args) - 1
	}
	switch name := args[at].(type) {
	case string:
		return name
	case []byte:
		return string(name)
	}
	return ""
}

// explainRefusals finds out of units that were denied whether it is their lease that the account
// may not touch: an UNLINK names both. To unlink a lease alone is harmless.
func (u *Unlinker) explainRefusals(ctx context.Context, refused []refusedUnit) error {
	var denied []int
	var commands []redis.Cmder
	for i, r := range refused {
		if r.lease != "" && firstWord(r.err) == "NOPERM" {
			denied = append(denied, i)
			commands = append(commands, redis.NewIntCmd(ctx, "unlink", r.lease))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	if err := u.nodes.exec(ctx, u.nodes.client, commands); err != nil {
		return err
	}
	for n, i := range denied {
		if err := commands[n].Err(); firstWord(err) == "NOPERM" {
			refused[i].err = err
		}
	}
	return nil
}
