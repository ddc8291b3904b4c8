package keyspace_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// If a server refuses connections, with TLS or without, the outage has its words and the fix. The
// next call works once the server accepts connections again.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	certificate, port := testenv.NewCertificate(t), strconv.Itoa(testenv.BusPort(t))
	server := testenv.OwnRedis(t, "--tls-port", port, "--tls-cert-file", certificate.CertFile, "--tls-key-file", certificate.KeyFile, "--tls-auth-clients", "no")
	admin := testenv.Client(t, server.URL())
	set := func(name, value string) {
		t.Helper()
		if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(url, name, value, normal, state, text string) {
		t.Helper()
		k := open(t, keyspace.Options{Redis: at(url)})
		set(name, value)
		for range 3 {
			err := k.Nodes.Ping(t.Context())
			wantOutage(t, err, state)
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", url, err)
			}
		}
		set(name, normal)
		if err := k.Nodes.Ping(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	refused(server.URL(), "maxclients", "1", "1000", keyspace.StateMaxClients, "ERR max number of clients reached; raise the server's maxclients")
	refused("rediss://127.0.0.1:"+port+"?skip_verify=true", "maxclients", "1", "1000", keyspace.StateNetwork, "in the TLS handshake; a server at maxclients hangs up there: raise maxclients")

	host := testenv.HostAddress(t)
	if host == "" {
		t.Log("this host has only loopback addresses, which protected mode accepts")
		return
	}
	set("bind", "127.0.0.1 "+host)
	for _, url := range []string{"redis://" + net.JoinHostPort(host, strconv.Itoa(server.Port())), "rediss://" + net.JoinHostPort(host, port) + "?skip_verify=true"} {
		refused(url, "protected-mode", "yes", "no", keyspace.StateProtected,
			"no password is set for the default user; set a password for the server's users")
	}
}

// A proxy that closes connections at HELLO, as twemproxy does, is named. A server that closes them
// for another reason is not.
func TestProxyIsNamed(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at("redis://" + twemproxy(t, server.Addr()))})
	for range 3 {
		err := k.Nodes.Ping(t.Context())
		wantOutage(t, err, keyspace.StateNetwork)
		if !strings.Contains(err.Error(), "a proxy, such as twemproxy, answers PING and closes the connection at HELLO") || !strings.Contains(err.Error(), "connect to Redis itself") {
			t.Error(err)
		}
	}
	certificate, port := testenv.NewCertificate(t), strconv.Itoa(testenv.BusPort(t))
	testenv.OwnRedis(t, "--tls-port", port, "--tls-cert-file", certificate.CertFile, "--tls-key-file", certificate.KeyFile, "--tls-auth-clients", "no")
	k = open(t, keyspace.Options{Redis: at("redis://127.0.0.1:" + port)})
	if err := k.Nodes.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "if its port is for TLS, use rediss://") {
		t.Error(err)
	}
}

// twemproxy starts the proxy before a Redis, and returns its address.
func twemproxy(t *testing.T, upstream string) (address string) {
	t.Helper()
	program, err := exec.LookPath("nutcracker")
	unpacked, _ := servers.Folder()
	unpacked = filepath.Join(unpacked, "nutcracker", "usr")
	if _, missing := os.Stat(unpacked); missing == nil {
		program, err = filepath.Join(unpacked, "sbin", "nutcracker"), nil
	}
	if err != nil {
		t.Fatalf("%v; run scripts/servers nutcracker in the checkout", err)
	}
	libraries, _ := filepath.Glob(filepath.Join(unpacked, "lib", "*-linux-gnu"))
	folder := t.TempDir()
	address = "127.0.0.1:" + strconv.Itoa(testenv.BusPort(t))
	config := filepath.Join(folder, "proxy.yml")
	text := "cache:\n  listen: " + address + "\n  redis: true\n  servers:\n   - " + upstream + ":1\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--conf-file", config, "--stats-port", strconv.Itoa(testenv.BusPort(t)), "--output", filepath.Join(folder, "log"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testenv.Eventually(t, "the proxy answers", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}
