package docs

import (
	"encoding/json"
	"regexp"
	"slices"
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
