package docs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const dashboardFile = "deploy/grafana/unstale.json"

// queries returns all queries of the alerts and of the dashboard, by their purpose. It replaces
// Grafana's interval.
func queries(t testing.TB) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, a := range alerts(t) {
		list["alert "+a.Alert] = a.Expr
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: the panel %q asks nothing", dashboardFile, p.Title)
		}
		for _, target := range p.Targets {
			list["panel "+p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
		}
	}
	return list
}

var (
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) ?\([^)]*\)`)
	rangeText = regexp.MustCompile(`\[[^\]]*\]`)
	name      = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})?(\s*\()?`)
	operators = []string{"and", "or", "unless", "bool", "offset"}
)

// selectors returns the series that a query reads: names, with their labels if it has any.
func selectors(query string) (list []string) {
	query = rangeText.ReplaceAllString(grouping.ReplaceAllString(query, ""), "")
	for _, match := range name.FindAllStringSubmatch(query, -1) {
		// a name before a parenthesis is a function
		if match[3] == "" && !slices.Contains(operators, match[1]) {
			list = append(list, match[1]+match[2])
		}
	}
	return list
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	query := `sum by (kind) (rate(a_total{kind!="x y"}[5m])) / on (kind) (b > 100e6) unless on () max(c:d) == 1`
	if got := selectors(query); !slices.Equal(got, []string{`a_total{kind!="x y"}`, "b", "c:d"}) {
		t.Errorf("%q", got)
	}
}

// The dashboard has lines where alerts begin, and where the hit ratio is good.
func TestDashboardHasThresholds(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title       string
			FieldConfig struct {
				Defaults struct {
					Custom     struct{ ThresholdsStyle struct{ Mode string } }
					Thresholds struct{ Steps []struct{ Value float64 } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	lines := map[string][]float64{}
	for _, p := range dashboard.Panels {
		if _, twice := lines[p.Title]; twice {
			t.Errorf("%s: two panels have the title %q", dashboardFile, p.Title)
		}
		lines[p.Title] = nil
		if d := p.FieldConfig.Defaults; d.Custom.ThresholdsStyle.Mode == "line" {
			for _, step := range d.Thresholds.Steps[1:] {
				lines[p.Title] = append(lines[p.Title], step.Value)
			}
		}
	}
	for _, c := range []struct {
		panel  string
		alerts []string
		others []float64
	}{
		{"From the commit to the UNLINK, at most", []string{"UnstaleLate"}, nil},
		{"Ages", []string{"UnstaleRowsWait", "UnstaleOverdue"}, nil},
		{"Hit ratio", []string{"UnstaleReaderHitRatioLow"}, []float64{0.9}},
		{"Hit ratio, by read", []string{"UnstaleReaderHitRatioLow"}, []float64{0.9}},
		{"Hit ratio of Redis", []string{"RedisHitRatioLow"}, []float64{0.9}},
		{"Evictions and expirations a second", []string{"RedisEvictions"}, nil},
		{"Memory, of maxmemory", nil, []float64{0.8, 0.95}},
		{"Fragmentation", []string{"RedisFragmentation"}, nil},
		{"Mean latency of a command", []string{"RedisLatency"}, nil},
		{"Time to live of keys, mean", []string{"RedisUsedAsDatabase"}, nil},
	} {
		want := c.others
		for _, a := range alerts(t) {
			if slices.Contains(c.alerts, a.Alert) {
				number, err := strconv.ParseFloat(firstLimit.FindStringSubmatch(a.Expr)[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, number)
			}
		}
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(lines[c.panel], want) {
			t.Errorf("%s: the panel %q has lines at %v, wanted %v", dashboardFile, c.panel, lines[c.panel], want)
		}
	}
}

// firstLimit is what an alert compares its first value with.
var firstLimit = regexp.MustCompile(`[<>] ([0-9.]+)`)
