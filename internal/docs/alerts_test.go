package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/internal/servers"
)

const (
	alertsFile     = "deploy/prometheus/alerts.yaml"
	alertsTestFile = "deploy/prometheus/alerts_test.yaml"
	// repository is the address that the pages will have.
	repository = "https://github.com/unstale/unstale/"
)

// An alert is an alert in alertsFile.
type alert struct {
	Alert, Expr string
	For         string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

// An alertGroup is a group of alerts.
type alertGroup struct {
	Name  string
	Rules []alert
}

// alerts returns the alerts of alertsFile.
func alerts(t testing.TB) (list []alert) {
	t.Helper()
	for _, g := range alertGroups(t) {
		list = append(list, g.Rules...)
	}
	if len(list) == 0 {
		t.Fatal("there are no alerts")
	}
	return list
}

func alertGroups(t testing.TB) []alertGroup {
	t.Helper()
	var file struct{ Groups []alertGroup }
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups
}

// monitoring returns the path of a program, from scripts/servers prometheus or from PATH. The
// program can have several names.
func monitoring(t testing.TB, names ...string) string {
	t.Helper()
	folder, found := servers.Folder()
	if !found {
		t.Fatal("there is no checkout, or its .servers")
	}
	for _, name := range names {
		path := filepath.Join(folder, "prometheus", "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("there is no %s; run scripts/servers prometheus in the checkout", names[0])
	return ""
}

// According to promtool, each alert fires for its reason and stays inactive over a healthy hour.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool := monitoring(t, "promtool")
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertsTestFile}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// Each alert has a test in which it fires and one in which it does not. It has a severity, the
// value, and a link to its fix.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	var tests struct {
		Tests []struct {
			Rules []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsTestFile)), &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, r := range test.Rules {
			fires[r.Name] = fires[r.Name] || len(r.Alerts) > 0
			silent[r.Name] = silent[r.Name] || len(r.Alerts) == 0
		}
	}
	cures := anchors(t, operationsPage)
	runbook := read(t, operationsPage)
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: tested to fire %t, to be silent %t", a.Alert, fires[a.Alert], silent[a.Alert])
		}
		if !slices.Contains([]string{"warning", "critical"}, a.Labels["severity"]) || a.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", a.Alert, a.Labels["severity"], a.Annotations["summary"])
		}
		if !strings.Contains(a.Annotations["description"], "$value") {
			t.Errorf("%s: the description does not have the value: %q", a.Alert, a.Annotations["description"])
		}
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if page != repository+"blob/main/"+operationsPage || !slices.Contains(cures, anchor) {
			t.Errorf("%s: there is no %q", a.Alert, a.Annotations["runbook_url"])
		}
		if !strings.Contains(runbook, "`"+a.Alert+"`") {
			t.Errorf("%s does not mention %s", operationsPage, a.Alert)
		}
	}
}
