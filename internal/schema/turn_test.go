package schema

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// The fates of a holder on one node of a cluster, while another process waits on the other node.
func TestTurnsOnACluster(t *testing.T) {
	t.Parallel()
	nodes := testenv.OwnPrimaries(t)
	for name, test := range map[string]func(*pair){
		"killed": killed, "frozen": frozen, "frozen and alone": frozenAlone, "frozen on the same node": frozenOnOneNode,
		"a clock that is ahead": clockAhead, "interrupted": interrupted, "GET_LOCK is refused": refusedLock,
		"an account without privileges": accounts, "two tasks": twoTasks,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newPair(t, nodes))
		})
	}
}

// A pair is a database on two nodes.
type pair struct {
	*testing.T
	nodes []*servers.MySQL
	name  string
	db    *sql.DB // on the second node
}

func newPair(t *testing.T, nodes []*servers.MySQL) *pair {
	p := &pair{T: t, nodes: nodes, name: "shop_" + strings.ReplaceAll(strings.TrimPrefix(t.Name(), "TestTurnsOnACluster/"), "_", "")}
	p.db = p.open(nodes[1].DSN(""))
	p.exec("CREATE DATABASE "+p.name, "CREATE TABLE "+p.name+".steps (id INT AUTO_INCREMENT PRIMARY KEY, who VARCHAR(20))")
	for i := range nodes {
		db := p.open(p.nodes[i].DSN(""))
		testenv.Eventually(t, "the table to exist on each node", func() bool {
			_, err := db.ExecContext(t.Context(), "SELECT * FROM "+p.name+".steps")
			return err == nil
		})
	}
	return p
}

func (p *pair) open(dsn string) *sql.DB {
	p.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = db.Close() })
	return db
}

func (p *pair) exec(statements ...string) {
	p.Helper()
	for _, s := range statements {
		if _, err := p.db.ExecContext(p.Context(), s); err != nil {
			p.Fatalf("%s: %v", s, err)
		}
	}
}

// wantSteps waits until the steps are those: a node shows what was done on the other one a moment
// later.
func (p *pair) wantSteps(want string) {
	p.Helper()
	testenv.Eventually(p, "the steps "+want, func() bool {
		var list string
		err := p.db.QueryRowContext(p.Context(), "SELECT COALESCE(GROUP_CONCAT(who ORDER BY id), '') FROM "+p.name+".steps").Scan(&list)
		return err == nil && list == want
	})
}

// expired waits until the lease has expired a second ago.
func (p *pair) expired() {
	p.Helper()
	testenv.Eventually(p, "the lease to expire", func() bool {
		var is bool
		err := p.db.QueryRowContext(p.Context(), "SELECT expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND FROM "+p.name+"."+table).Scan(&is)
		return err == nil && is
	})
}

// A process takes a turn, as a child of the test.
type process struct {
	*pair
	cmd  *exec.Cmd
	in   io.WriteCloser
	over chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts a process on a node. parameters are more of its DSN.
func (p *pair) start(node int, parameters string) *process {
	p.Helper()
	r := &process{pair: p, cmd: exec.Command(os.Args[0]), over: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), childVariable+"="+p.nodes[node].DSN(p.name)+parameters)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	in, err := r.cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	r.in = in
	if err := r.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.over) }()
	p.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		_ = r.cmd.Process.Kill()
		<-r.over
		if p.Failed() {
			p.Logf("the process on node %d:\n%s", node, r.text())
		}
	})
	return r
}

func (p *process) until(part string) {
	p.Helper()
	testenv.Eventually(p, part, func() bool { return strings.Contains(p.text(), part) })
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// step lets the process insert a row with this text.
func (p *process) step(who string) {
	p.Helper()
	if _, err := fmt.Fprintf(p.in, "INSERT INTO %s.steps (who) VALUES ('%s')\n", p.name, who); err != nil {
		p.Fatal(err)
	}
}

func (p *process) end() {
	p.Helper()
	_ = p.in.Close()
	<-p.over
}

// waits is the notice of a process that waits for another.
func waits(holder *process) string {
	return fmt.Sprintf("notice: waits for \"migrate, process %d on ", holder.cmd.Process.Pid)
}

func killed(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	b := p.start(1, "")
	b.until(waits(a))
	b.until("which changes the schema and has the turn until 20")
	a.signal(syscall.SIGKILL)
	b.until("notice: takes over the turn of \"migrate, process ")
	b.until("\nturn\n")
	b.step("b")
	b.end()
	p.wantSteps("b")
	if !strings.HasSuffix(b.text(), "\nended\n") {
		p.Error("the other one did not end well")
	}
}

func frozen(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	a.step("a")
	a.until("stepped")
	b := p.start(1, "")
	b.until(waits(a))
	a.signal(syscall.SIGSTOP)
	b.until("\nturn\n")
	b.step("b")
	b.until("stepped")
	a.signal(syscall.SIGCONT)
	a.step("a")
	a.end()
	b.step("b")
	b.end()
	if !strings.Contains(a.text(), "ended: the turn is lost: this process did not run for ") || strings.Contains(a.text(), "end the turn") || !strings.HasSuffix(b.text(), "\nended\n") {
		p.Error("the wrong one has ended")
	}
	p.wantSteps("a,b,b")
}

// A holder that was frozen for longer than its lease stops even if no other process waits.
func frozenAlone(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	a.signal(syscall.SIGSTOP)
	p.expired()
	a.signal(syscall.SIGCONT)
	a.step("a")
	a.end()
	p.wantSteps("")
	if !strings.Contains(a.text(), "ended: the turn is lost: this process did not run for ") {
		p.Error("the frozen process did not notice")
	}
}

// The user lock of a frozen process does not outlive its lease.
func frozenOnOneNode(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	a.signal(syscall.SIGSTOP)
	b := p.start(0, "")
	b.until("takes over the turn")
	b.until("\nturn\n")
	b.end()
}

// A process whose server's clock is ahead does not take the lease of one that renews it.
func clockAhead(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	b := p.start(1, "&timestamp=2147480000")
	b.until(waits(a))
	for seen, renewals := "", 0; renewals < 6; { // for a lease
		testenv.Eventually(p, "a renewal", func() bool {
			var until string
			err := p.db.QueryRowContext(p.Context(), "SELECT expires_at FROM "+p.name+"."+table).Scan(&until)
			if err != nil || until == seen {
				return false
			}
			seen = until
			return true
		})
		renewals++
	}
	if strings.Contains(b.text(), "\nturn\n") {
		p.Error("the other process took the turn")
	}
	a.end()
	b.until("\nturn\n")
	b.end()
	if !strings.HasSuffix(a.text(), "\nended\n") {
		p.Error("the holder did not end well")
	}
}

func interrupted(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	b := p.start(1, "")
	b.until(waits(a))
	b.signal(syscall.SIGINT)
	b.end()
	if !strings.Contains(b.text(), "ended: wait for the turn to migrate: context canceled") {
		p.Error("the waiting process did not stop")
	}
	a.step("a")
	a.end()
	p.wantSteps("a")
}

// Both tasks change the schema, so they wait for each other.
func twoTasks(p *pair) {
	a := p.start(0, "")
	a.until("turn\n")
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	err := InTurn(ctx, p.open(p.nodes[1].DSN(p.name)), "capture", func(string) { cancel() }, func(*Turn) error { return errors.New("it has the turn") })
	if !errors.Is(err, context.Canceled) {
		p.Errorf("%v", err)
	}
	a.end()
}

// A connection turns each GET_LOCK into a call of a function that is as long.
type connection struct{ net.Conn }

func (c connection) Write(b []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(b, []byte("GET_LOCK"), []byte("PXC_LOCK")))
}

// Percona XtraDB Cluster refuses GET_LOCK by default. The lease alone decides there, and the
// process reports it.
func refusedLock(p *pair) {
	p.exec("CREATE FUNCTION " + p.name + ".PXC_LOCK(name TEXT, seconds INT) RETURNS INT NO SQL BEGIN SIGNAL SQLSTATE 'HY000' " +
		"SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'Percona-XtraDB-Cluster prohibits use of GET_LOCK with pxc_strict_mode = ENFORCING'; RETURN 1; END")
	config, err := mysql.ParseDSN(p.nodes[0].DSN(p.name))
	if err != nil {
		p.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return connection{conn}, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		p.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	testenv.Eventually(p, "the function to exist", func() bool {
		_, err := db.ExecContext(p.Context(), "SELECT PXC_LOCK('a', 0)")
		return err != nil && strings.Contains(err.Error(), "1105")
	})
	var notices []string
	err = InTurn(p.Context(), db, "migrate", func(notice string) { notices = append(notices, notice) }, func(turn *Turn) error {
		if turn.lease == nil {
			p.Error("it has no lease")
		}
		return nil
	})
	if err != nil || len(notices) != 1 || !strings.Contains(notices[0], "prohibits use of GET_LOCK") || !strings.HasSuffix(notices[0], "; only the table cache_outbox_turn keeps processes apart") {
		p.Errorf("%q, %v", notices, err)
	}
}

// The lease needs no privilege that a migrator does not have, and names those that are missing.
func accounts(p *pair) {
	for name, grant := range map[string]string{"none": "CREATE ROUTINE", "migrator": "CREATE, ALTER, INDEX, DROP, SELECT, INSERT, DELETE, TRIGGER"} {
		p.exec("CREATE USER '"+name+"'@'%' IDENTIFIED BY 'secret'", "GRANT "+grant+" ON "+p.name+".* TO '"+name+"'@'%'")
		config, err := mysql.ParseDSN(p.nodes[1].DSN(p.name))
		if err != nil {
			p.Fatal(err)
		}
		config.User, config.Passwd = name, "secret"
		err = InTurn(p.Context(), p.open(config.FormatDSN()), "migrate", func(string) {}, func(turn *Turn) error { return turn.lease.renew() })
		switch {
		case name == "migrator" && err != nil:
			p.Error(err)
		case name == "none" && (err == nil || !strings.HasSuffix(err.Error(), "; GRANT CREATE, SELECT, INSERT, DELETE ON cache_outbox_turn to this account")):
			p.Errorf("%v", err)
		}
	}
}

// The statements of a lease on both kinds of servers: it is taken over from a process that has
// died, and its holder notices when another process has it.
func TestLease(t *testing.T) {
	t.Parallel()
	var server *servers.MySQL
	if testenv.OwnFlavor(t) == servers.KindMySQL {
		server = testenv.OwnMySQL(t, "--plugin-load-add=group_replication.so", "--loose-group-replication-single-primary-mode=OFF")
	} else {
		server = testenv.OwnGalera(t, 1)[0]
	}
	p := &pair{T: t, nodes: []*servers.MySQL{server}}
	p.db = p.open(server.DSN(""))
	p.exec("CREATE DATABASE shop")
	db := p.open(server.DSN("shop"))
	db.SetMaxOpenConns(2)
	var notices []string
	turn := func(fn func(*Turn) error) error {
		return InTurn(t.Context(), db, "migrate", func(notice string) { notices = append(notices, notice) }, fn)
	}
	err := turn(func(turn *Turn) error {
		var holder sql.NullInt64 // which a binary that knows only GET_LOCK waits for
		err := p.db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(CONCAT('unstale.migrate.', LEFT(SHA2('shop', 256), 32)))").Scan(&holder)
		if err != nil || !holder.Valid {
			t.Errorf("the user lock: %v, %v", holder, err)
		}
		return turn.lease.renew()
	})
	if err != nil || notices != nil {
		t.Errorf("%q, %v", notices, err)
	}
	p.exec("INSERT INTO shop." + table + " VALUES (1, 'the dead', UTC_TIMESTAMP(6) - INTERVAL 1 SECOND)")
	err = turn(func(turn *Turn) error {
		p.exec("UPDATE shop." + table + " SET owner = 'the next'")
		return turn.Patiently(t.Context(), func(error) string { return "the step" }, func(context.Context) error { return errors.New("it ran") })
	})
	if err == nil || err.Error() != "the turn is lost: this process did not renew it within 3s, and another one has taken it over; run it again" {
		t.Errorf("%v", err)
	}
	if len(notices) != 2 || !strings.HasPrefix(notices[0], `waits for "the dead", which`) || notices[1] != `takes over the turn of "the dead", which has not renewed it` {
		t.Errorf("%q", notices)
	}
	p.exec("DELETE FROM shop." + table)
	err = turn(func(*Turn) error {
		p.exec("UPDATE shop." + table + " SET owner = 'the next'")
		return nil
	})
	if err == nil || !strings.HasPrefix(err.Error(), "end the turn to migrate: another process has taken it over") {
		t.Errorf("%v", err)
	}
}

// A turn outlasts the time after which a proxy, or the server, ends idle sessions.
func TestTurnOfAnIdleSession(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(testenv.MySQL(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"wait_timeout": "2"}
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = InTurn(t.Context(), db, "migrate", func(string) {}, func(*Turn) error {
		_, err := db.ExecContext(t.Context(), "DO SLEEP(4)") // a long step, in another session
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
