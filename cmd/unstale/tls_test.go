package main

import (
	"database/sql"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

const serverName = "server.test"

// A tlsWorld is a world whose servers speak TLS, and require a certificate of clients.
type tlsWorld struct {
	*world
	authority *testenv.Authority
	database  *servers.MySQL
	dir       string
}

func (w *tlsWorld) file(name string) string { return filepath.Join(w.dir, name) }

func newTLSWorld(t testing.TB) *tlsWorld {
	t.Helper()
	w := &tlsWorld{dir: t.TempDir(), authority: testenv.NewAuthority(t)}
	until := time.Now().Add(time.Hour)
	w.authority.Issue(t, w.file("server.pem"), w.file("server.key"), serverName, "127.0.0.1", until)
	w.authority.Issue(t, w.file("client.pem"), w.file("client.key"), "worker", "", until)
	w.copy(t, w.authority.File, "server-trusts.pem")
	w.copy(t, w.authority.File, "client-trusts.pem")

	database := testenv.OwnMySQL(t, "--ssl-ca="+w.file("server-trusts.pem"), "--ssl-cert="+w.file("server.pem"), "--ssl-key="+w.file("server.key"))
	admin, err := sql.Open("mysql", database.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range []string{"CREATE DATABASE shop", "CREATE USER worker IDENTIFIED BY 'hush' REQUIRE X509", "GRANT ALL ON shop.* TO worker"} {
		if _, err := admin.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("mysql", database.DSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	schematest.Up(t, db)
	cfg, err := mysql.ParseDSN(database.TCPDSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd, cfg.Params = "worker", "hush", nil

	port := strconv.Itoa(testenv.BusPort(t))
	cache := testenv.OwnRedis(t, "--tls-port", port, "--tls-cert-file", w.file("server.pem"), "--tls-key-file", w.file("server.key"),
		"--tls-ca-cert-file", w.file("server-trusts.pem"), "--tls-auth-clients", "yes")
	client := redis.NewClient(&redis.Options{Addr: cache.Addr()}) // without TLS
	t.Cleanup(func() { _ = client.Close() })
	testenv.SetUser(t, client, "worker", "on", ">hush", "~*", "&*", "+@all")

	maps := w.file("map.yaml")
	if err := os.WriteFile(maps, []byte(thingMap), 0o600); err != nil {
		t.Fatal(err)
	}
	w.database = database
	w.world = &world{t: t, db: db, server: cache, redis: client, env: map[string]string{
		"MYSQL_DSN": cfg.FormatDSN(), "REDIS_URL": "redis://worker:hush@" + net.JoinHostPort("127.0.0.1", port), "UNSTALE_MAP": maps, "UNSTALE_LISTEN": "-",
	}}
	for _, server := range []string{"MYSQL", "REDIS"} {
		w.env[server+"_TLS_CA_FILE"] = w.file("client-trusts.pem")
		w.env[server+"_TLS_CERT_FILE"], w.env[server+"_TLS_KEY_FILE"] = w.file("client.pem"), w.file("client.key")
	}
	return w
}

func (w *tlsWorld) copy(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(w.file(to), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reload makes both servers read their files again.
func (w *tlsWorld) reload(t testing.TB) {
	t.Helper()
	statement := "ALTER INSTANCE RELOAD TLS"
	if w.database.Flavor() == servers.KindMariaDB {
		statement = "FLUSH SSL"
	}
	if _, err := w.db.Exec(statement); err != nil {
		t.Fatal(err)
	}
	w.reloadRedis(t)
}

func (w *tlsWorld) reloadRedis(t testing.TB) {
	t.Helper()
	if err := w.redis.Do(t.Context(), "config", "set", "tls-cert-file", w.file("server.pem"), "tls-key-file", w.file("server.key"),
		"tls-ca-cert-file", w.file("server-trusts.pem")).Err(); err != nil {
		t.Fatal(err)
	}
}

// With certificates from files, both servers are used over TLS, and each refusal names its fix.
func TestCertificates(t *testing.T) {
	t.Parallel()
	w := newTLSWorld(t)
	other := testenv.NewAuthority(t)
	file := w.env["UNSTALE_MAP"]
	commands := map[string][]string{"MYSQL": {"migrate", "status"}, "REDIS": {"map", "check", file, "--redis-url", w.env["REDIS_URL"]}}
	check := func(what string, change map[string]string, want string) {
		t.Helper()
		for server, args := range commands {
			env := maps.Clone(w.env)
			for name, value := range change {
				env[server+name] = value
			}
			want := strings.ReplaceAll(want, "SRV", server)
			r := call(t, env, args...)
			if well := r.code == exitDone; well != (want == "") || !strings.Contains(r.err, want) || strings.Contains(r.err, "hush") {
				t.Errorf("%s, %s: %+v, wanted %q", what, server, r, want)
			}
		}
	}
	check("the host's name", nil, "")
	check("another name of the server", map[string]string{"_TLS_SERVER_NAME": serverName}, "")
	check("a wrong name", map[string]string{"_TLS_SERVER_NAME": "other.test"}, "connect by a name that the server's certificate has, or set SRV_TLS_SERVER_NAME to one")
	check("another authority", map[string]string{"_TLS_CA_FILE": other.File}, "name it in SRV_TLS_CA_FILE or in SSL_CERT_FILE")
	check("no authority", map[string]string{"_TLS_CA_FILE": ""}, "name it in SRV_TLS_CA_FILE or in SSL_CERT_FILE")
	check("no key", map[string]string{"_TLS_KEY_FILE": ""}, "a client needs both its certificate and its key")
	check("a key that does not fit", map[string]string{"_TLS_KEY_FILE": w.file("server.key")}, "client certificate "+w.file("client.pem")+" with key "+w.file("server.key")+": ")
	other.Issue(t, w.file("other.pem"), w.file("other.key"), "worker", "", time.Now().Add(time.Hour))
	check("a client's certificate of another authority", map[string]string{"_TLS_CERT_FILE": w.file("other.pem"), "_TLS_KEY_FILE": w.file("other.key")}, "SRV_TLS_CERT_FILE")
	check("no such file", map[string]string{"_TLS_CA_FILE": w.file("none")}, "open "+w.file("none")+": no such file")
	check("no PEM", map[string]string{"_TLS_CA_FILE": file}, file+" has no certificate in PEM")
	dsn := map[string]string{"MYSQL_DSN": w.env["MYSQL_DSN"], "MYSQL_TLS_CA_FILE": w.authority.File}
	if r := call(t, dsn, "status"); r.code != exitFail || !strings.Contains(r.err, "if the account requires a certificate, MYSQL_TLS_CERT_FILE") {
		t.Errorf("no certificate: %+v", r)
	}
	dsn = map[string]string{"MYSQL_DSN": w.env["MYSQL_DSN"] + "&tls=skip-verify", "MYSQL_TLS_CA_FILE": other.File}
	if r := call(t, dsn, "migrate", "status"); r.code != exitUsage || !strings.Contains(r.err, "certificates are not checked; remove skip-verify") {
		t.Errorf("skip-verify: %+v", r)
	}
	dsn = map[string]string{"MYSQL_DSN": w.database.DSN("shop"), "MYSQL_TLS_CA_FILE": w.authority.File}
	if r := call(t, dsn, "migrate", "status"); r.code != exitUsage || !strings.Contains(r.err, "a socket has no name; set MYSQL_TLS_SERVER_NAME") {
		t.Errorf("a socket: %+v", r)
	}
	for url, want := range map[string]string{
		w.env["REDIS_URL"]:            "if its port is for TLS, use rediss://",
		"rediss://" + w.server.Addr(): "if the port is without TLS, use redis://",
	} {
		if r := call(t, nil, "map", "check", file, "--redis-url", url); r.code != exitFail || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, wanted %q", url, r, want)
		}
	}
	w.authority.Issue(t, w.file("server.pem"), w.file("server.key"), serverName, "127.0.0.1", time.Now().Add(-time.Hour))
	w.reloadRedis(t)
	w.db.SetMaxIdleConns(-1)
	if err := w.database.Stop(t.Context()); err != nil { // which would not load it while it runs
		t.Fatal(err)
	}
	if err := w.database.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("expired", nil, "renew the server's certificate, or correct the clock of this host")
}

// While a worker runs, every certificate and both authorities change: the servers' first, then the
// worker's. It waits meanwhile, and then it processes rows with the new ones.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	w := newTLSWorld(t)
	r := w.start()
	done := func() bool { return w.keys() == 0 && w.count("cache_outbox") == 0 }
	w.fill(2)
	r.until("the first rows", done)

	authority, until := testenv.NewAuthority(t), time.Now().Add(time.Hour)
	authority.Issue(t, w.file("server.pem"), w.file("server.key"), serverName, "127.0.0.1", until)
	w.copy(t, authority.File, "server-trusts.pem")
	w.reload(t)
	for _, id := range testenv.Sessions(t, w.db, "user = 'worker'") {
		_, _ = w.db.Exec(fmt.Sprint("KILL CONNECTION ", id)) // it may have ended
	}
	if n, err := w.redis.ClientKillByFilter(t.Context(), "user", "worker").Result(); err != nil || n == 0 {
		t.Fatalf("%d connections killed: %v", n, err)
	}
	w.fill(2)
	r.until("the servers are not trusted", func() bool { return r.log.has("MYSQL_TLS_CA_FILE") })
	if done() {
		t.Fatal("rows were processed with old certificates")
	}
	w.copy(t, authority.File, "client-trusts.pem")
	authority.Issue(t, w.file("client.pem"), w.file("client.key"), "worker", "", until)
	r.until("rows with the new certificates", done)
	r.signal(os.Interrupt)
	r.wantExit(exitDone)
}
