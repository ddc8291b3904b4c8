package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A Certificate is a self-signed certificate for servers at 127.0.0.1.
type Certificate struct {
	CertFile, KeyFile string         // PEM
	Authorities       *x509.CertPool // for clients of the server
}

// NewCertificate creates a certificate, whose files are removed at the end of the test.
func NewCertificate(t testing.TB) *Certificate {
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
	c := &Certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(os.WriteFile(c.CertFile, certPEM, 0o600))
	must(os.WriteFile(c.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	c.Authorities.AppendCertsFromPEM(certPEM)
	return c
}

// OwnTLSRedis starts a Redis for one test that uses TLS with this certificate, and returns its host
// and port.
func (c *Certificate) OwnTLSRedis(t testing.TB) string {
	t.Helper()
	port := strconv.Itoa(BusPort(t))
	OwnRedis(t, "--tls-port", port, "--tls-cert-file", c.CertFile, "--tls-key-file", c.KeyFile, "--tls-auth-clients", "no")
	return net.JoinHostPort("127.0.0.1", port)
}
