package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
