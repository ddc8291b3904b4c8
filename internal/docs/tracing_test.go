package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/worker"
)

// docs/tracing.md lists the variables that say where spans go, and no other.
func TestTracingVariables(t *testing.T) {
	t.Parallel()
	var read, listed []string
	_, err := worker.TracingFromEnv(func(name string) (string, bool) {
		read = append(read, name)
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here"}[name], true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range table(t, "docs/tracing.md", "variable") {
		listed = append(listed, strings.Split(row[0], ", ")...)
	}
	slices.Sort(read)
	slices.Sort(listed)
	if read = slices.Compact(read); !slices.Equal(read, listed) {
		t.Errorf("read   %q\nlisted %q", read, listed)
	}
}
