package testenv

import (
	"crypto/x509"
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
	dir := t.TempDir()
	c := &Certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	self := &Authority{own: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}}
	self.sign(t, self.own, c.CertFile, c.KeyFile)
	text, err := os.ReadFile(c.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	c.Authorities.AppendCertsFromPEM(text)
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
