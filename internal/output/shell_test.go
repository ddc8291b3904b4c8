package output_test

import (
	"os/exec"
	"testing"

	"github.com/unstale/unstale/internal/output"
)

// What Shell returns is one word for bash, with the same bytes.
func TestShell(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"products", "it's", "a b;c", "$(date)", "ü", "", "a\nb", "\x1b[2J", "\u202e", "-n", "*", "`x`", `a\b`, "it's\x01"} {
		got, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+output.Shell(text)).Output()
		if err != nil || string(got) != text {
			t.Errorf("%q as %s: bash reads %q, %v", text, output.Shell(text), got, err)
		}
	}
}
