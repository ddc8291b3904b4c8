package keyspace_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// If a server refuses connections, with TLS or without, the outage has its words and the fix. The
// next call works once the server accepts connections again.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	certificate, port := testenv.NewCertificate(t), strconv.Itoa(testenv.BusPort(t))
	server := testenv.OwnRedis(t, "--tls-port", port, "--tls-cert-file", certificate.CertFile, "--tls-key-file", certificate.KeyFile, "--tls-auth-clients", "no")
	admin := clientOf(t, server.URL())
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
