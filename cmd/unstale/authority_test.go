package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
)

// A server's certificate of a private authority is refused, and accepted with SSL_CERT_FILE.
func TestPrivateAuthority(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nentities: {product: {keys: [\"shop:product:{id}\"]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"map", "check", file, "--redis-url", "rediss://" + certificate.OwnTLSRedis(t)}
	if out, err := child(t.Context(), nil, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "certificate") {
		t.Errorf("without it: %v\n%s", err, out)
	}
	if out, err := child(t.Context(), map[string]string{"SSL_CERT_FILE": certificate.CertFile}, args...).CombinedOutput(); err != nil {
		t.Errorf("with it: %v\n%s", err, out)
	}
}

// So may the certificate of MySQL. Without it, the error names the fix.
func TestPrivateAuthorityOfMySQL(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	own := testenv.OwnMySQL(t, "--ssl-cert="+certificate.CertFile, "--ssl-key="+certificate.KeyFile)
	admin, err := sql.Open("mysql", own.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	dsn, err := mysql.ParseDSN(own.TCPDSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	dsn.TLSConfig = "true"
	args := []string{"migrate", "up", "--mysql-dsn", dsn.FormatDSN()}
	if out, err := child(t.Context(), nil, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "certificate signed by unknown authority; trust the authority that has signed the server's certificate: name it in MYSQL_TLS_CA_FILE or in SSL_CERT_FILE") {
		t.Errorf("without it: %v\n%s", err, out)
	}
	if out, err := child(t.Context(), map[string]string{"SSL_CERT_FILE": certificate.CertFile}, args...).CombinedOutput(); err != nil {
		t.Errorf("with it: %v\n%s", err, out)
	}
}
