package locktest

import (
	"strings"
	"testing"
)

// WantRefused fails the test unless an error says that a certificate is refused, and what to do.
func WantRefused(t *testing.T, what string, err error) {
	t.Helper()
	for _, want := range []string{"certificate signed by unknown authority", "RootCAs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", what, err, want)
		}
	}
}
