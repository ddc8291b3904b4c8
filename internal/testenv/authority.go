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
	"testing"
	"time"
)

// An Authority signs certificates of one test.
type Authority struct {
	File string // its own certificate, in PEM

	own     *x509.Certificate
	private *ecdsa.PrivateKey
}

// NewAuthority creates an authority, whose file is removed at the end of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	a.own = &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, SubjectKeyId: make([]byte, 20),
	}
	_, _ = rand.Read(a.own.SubjectKeyId)
	a.sign(t, a.own, a.File, a.File+".key")
	return a
}

// Issue writes a certificate for a server or a client and its key. The certificate has a name, and
// a server's address too unless it is "".
func (a *Authority) Issue(t testing.TB, certFile, keyFile, name, address string, until time.Time) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: until, DNSNames: []string{name}}
	template.Subject.CommonName = name
	if ip := net.ParseIP(address); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	a.sign(t, template, certFile, keyFile)
}

func (a *Authority) sign(t testing.TB, template *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.private == nil {
		a.private = private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.own, private.Public(), a.private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
