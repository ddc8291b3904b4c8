package keyspace_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// The URL, TLS or TLSConfig enables TLS, and then certificates are checked.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	addr, trust := certificate.OwnTLSRedis(t), &tls.Config{RootCAs: certificate.Authorities}
	for _, c := range []struct {
		what string
		o    keyspace.Options
		ok   bool
	}{
		{"authority known", keyspace.Options{Redis: trusting("redis://"+addr, trust)}, true},
		{"authority known, rediss", keyspace.Options{Redis: trusting("rediss://"+addr, trust)}, true},
		{"not checked", keyspace.Options{Redis: at("rediss://" + addr + "?skip_verify=true")}, true},
		{"not checked, TLS", keyspace.Options{Redis: withTLS("redis://" + addr + "?skip_verify=true")}, true},
		{"authority unknown", keyspace.Options{Redis: at("rediss://" + addr)}, false},
		{"authority unknown, TLS", keyspace.Options{Redis: withTLS("redis://" + addr)}, false},
		{"no TLS", keyspace.Options{Redis: at("redis://" + addr)}, false},
	} {
		k := open(t, c.o)
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		if c.ok && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if !c.ok {
			wantOutage(t, err, keyspace.StateNetwork)
		}
		if strings.HasPrefix(c.what, "authority unknown") && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v hides its cause", c.what, err)
		}
	}
}
