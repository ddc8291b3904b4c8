package keyspace_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// TLS is on when the URL, TLS or TLSConfig says so, and then certificates are checked.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, authorities := certificate(t)
	port := strconv.Itoa(testenv.BusPort(t))
	testenv.OwnRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	addr := net.JoinHostPort("127.0.0.1", port)
	trust := &tls.Config{RootCAs: authorities}
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
		_, err := k.Unlink(t.Context(), targets("a"))
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

// certificate makes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(os.WriteFile(certFile, certPEM, 0o600))
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}
