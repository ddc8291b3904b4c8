package session

import (
	"strings"
	"testing"
)

func TestErrorTextIsCutAtACharacter(t *testing.T) {
	t.Parallel()
	got := ErrorText(strings.Repeat("ع", maxErrorBytes))
	if want := strings.Repeat("ع", maxErrorBytes/2) + "..."; got != want {
		t.Errorf("%d bytes", len(got))
	}
}
