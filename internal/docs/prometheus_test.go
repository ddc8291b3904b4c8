package docs

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// scrapeInterval is not shorter, since a scrape takes a good part of it on a busy machine, and
	// a failed scrape restarts the time of a pending alert.
	scrapeInterval   = time.Second
	evaluateInterval = scrapeInterval / 2
	// While a drill waits for an alert, the alert's times are divided by these: its range, as in
	// [5m] and offset 5m, and its "for". Its thresholds stay.
	backHaste, forHaste = 100, 600
	// hasty is the name prefix of an alert with divided times.
	hasty = "Hasty"
)

var (
	backTime = regexp.MustCompile(`(\[|offset )([0-9]+[smhd])\b`)
	anyTime  = regexp.MustCompile(`\b[0-9]+(ms|s|m|h|d)\b`)
)

// hurry returns an alert with a new name and divided times. All else stays.
func hurry(t testing.TB, a alert) alert {
	t.Helper()
	divided := func(text string, by time.Duration) string {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", a.Alert, err)
		}
		return fmt.Sprintf("%dms", (d / by).Milliseconds())
	}
	a.Expr = backTime.ReplaceAllStringFunc(a.Expr, func(text string) string {
		match := backTime.FindStringSubmatch(text)
		return match[1] + divided(match[2], backHaste)
	})
	if a.For != "" {
		a.For = divided(a.For, forHaste)
	}
	a.Alert = hasty + a.Alert
	return a
}

func TestHurry(t *testing.T) {
	t.Parallel()
	got := hurry(t, alert{Alert: "A", Expr: `rate(a{b!="x"}[5m]) > 60 and increase(c[30m]) > 5 unless c offset 15m`, For: "15m"})
	if got.Alert != "HastyA" || got.Expr != `rate(a{b!="x"}[3000ms]) > 60 and increase(c[18000ms]) > 5 unless c offset 9000ms` || got.For != "1500ms" {
		t.Errorf("%+v", got)
	}
	for _, a := range alerts(t) {
		after := hurry(t, a)
		if anyTime.ReplaceAllString(a.Expr, "") != anyTime.ReplaceAllString(after.Expr, "") || (a.For == "") != (after.For == "") {
			t.Errorf("%s becomes %+v", a.Alert, after)
		}
		for _, left := range anyTime.FindAllString(after.Expr+" "+after.For, -1) {
			if !strings.HasSuffix(left, "ms") {
				t.Errorf("%s keeps %s: %+v", a.Alert, left, after)
			}
		}
	}
}

// A prometheusServer has the rules loaded twice: as they are, and with divided times.
type prometheusServer struct {
	t       *testing.T
	process *process
	client  *http.Client
	address string
}

// startPrometheus starts a Prometheus that scrapes the targets.
func startPrometheus(t *testing.T, targets ...string) *prometheusServer {
	t.Helper()
	folder := t.TempDir()
	for i, target := range targets {
		targets[i] = strings.TrimPrefix(target, "http://")
	}
	file := func(name string, content any) string {
		t.Helper()
		text, err := yaml.Marshal(content)
		path := filepath.Join(folder, name)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	inHaste := alertGroup{Name: "haste"}
	for _, a := range alerts(t) {
		inHaste.Rules = append(inHaste.Rules, hurry(t, a))
	}
	config := file("prometheus.yaml", map[string]any{
		"global": map[string]any{
			"scrape_interval": scrapeInterval.String(), "scrape_timeout": scrapeInterval.String(), "evaluation_interval": evaluateInterval.String(),
		},
		"rule_files": []string{filepath.Join(checkout(t), alertsFile), file("haste.yaml", map[string]any{"groups": []alertGroup{inHaste}})},
		"scrape_configs": []any{map[string]any{
			"job_name": "all", "static_configs": []any{map[string]any{"targets": targets}},
		}},
	})
	address := listenAddress(t)
	p := &prometheusServer{t: t, address: "http://" + address, client: &http.Client{}}
	t.Cleanup(p.client.CloseIdleConnections)
	p.process = launch(t, exec.Command(monitoring(t, "prometheus"), "--config.file", config, "--storage.tsdb.path", filepath.Join(folder, "data"),
		"--web.listen-address", address, "--log.level", "warn"))
	p.process.until("prometheus is ready", func() bool {
		reply, err := p.client.Get(p.address + "/-/ready")
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	return p
}

// listenAddress returns an address that no process listens on now.
func listenAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask decodes the data of an API response.
func (p *prometheusServer) ask(path string, data any) {
	p.t.Helper()
	reply, err := p.client.Get(p.address + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer reply.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil || answer.Error != "" {
		p.t.Fatalf("%s: %s, %v", path, answer.Error, err)
	}
}

// query returns the result of a query.
func (p *prometheusServer) query(query string) []any {
	p.t.Helper()
	var data struct{ Result []any }
	p.ask("/api/v1/query?query="+url.QueryEscape(query), &data)
	return data.Result
}

// states returns the state of each alert that was evaluated without an error: inactive, pending or
// firing.
func (p *prometheusServer) states() map[string]string {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	p.ask("/api/v1/rules", &data)
	states := map[string]string{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health == "err" {
				p.t.Fatalf("%s: %s", r.Name, r.LastError)
			}
			if r.Health == "ok" {
				states[r.Name] = r.State
			}
		}
	}
	return states
}

// firing returns the names of the divided alerts that fire, without the prefix, in ascending order.
func (p *prometheusServer) firing() (list []string) {
	p.t.Helper()
	states := p.states()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if alert, ok := strings.CutPrefix(name, hasty); ok && states[name] == "firing" {
			list = append(list, alert)
		}
	}
	return list
}
