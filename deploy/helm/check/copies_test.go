package check

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

const again = "run make test-chart CHART=-update"

// The PrometheusRule has the alerts of deploy/prometheus. A chart cannot read files outside of its
// directory, so it has a copy.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const file, copied = root + "deploy/prometheus/alerts.yaml", chart + "/files/alerts.yaml"
	alerts := read(t, file)
	if *update {
		write(t, copied, alerts)
	}
	if read(t, copied) != alerts {
		t.Errorf("%s differs from %s: %s", copied, file, again)
	}
	var want monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict([]byte(alerts), &want); err != nil {
		t.Fatal(err)
	}
	got := one[*monitoringv1.PrometheusRule](t, render(t, "unstale", "--values", chart+"/ci/monitoring-values.yaml"))
	if len(want.Groups) == 0 || !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("the rules are %v, wanted %v", got.Spec, want)
	}
	moved, err := helm(t, "template", "unstale", chart, "--values", chart+"/ci/monitoring-values.yaml", "--set", "monitoring.prometheusRule.docs=https://wiki.example/unstale/")
	if n := strings.Count(alerts, "runbook_url: "); err != nil || n == 0 || strings.Count(moved, "runbook_url: https://wiki.example/unstale/operations.md#") != n {
		t.Errorf("a link does not lead to the pages of the values: %v\n%s", err, moved)
	}
}

// Lines of manifests that only a release of Helm has.
var ofHelm = regexp.MustCompile(`(?m)^(# Source: .*| +helm\.sh/chart: .*| +app\.kubernetes\.io/managed-by: .*)\n`)

// manifestHeader begins the plain manifest.
const manifestHeader = `# What the Helm chart renders for a ConfigMap unstale-map with the key mapping.yaml: see docs/installing.md.
# make test-chart CHART=-update writes this file.
`

// deploy/kubernetes.yaml is the manifest that the chart renders.
func TestPlainManifest(t *testing.T) {
	t.Parallel()
	const file = root + "deploy/kubernetes.yaml"
	text, err := helm(t, "template", "unstale", chart, "--values", chart+"/ci/plain-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := manifestHeader + strings.TrimPrefix(ofHelm.ReplaceAllString(text, ""), "---\n")
	if *update {
		write(t, file, want)
	}
	if read(t, file) != want {
		t.Errorf("%s is not the manifest that the chart renders: %s\n%s", file, again, want)
	}
	decode(t, want)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
