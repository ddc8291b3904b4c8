//go:build browser

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// A chromium is a browser, driven by testdata/browser/driver.js, with one page at a time. Each call
// fails the test if the browser reports a problem. Problems are errors and warnings in its console,
// violations of the Content-Security-Policy, errors in scripts and dialogs. So are requests to an
// address other than the console's; a proxy refuses them.
type chromium struct {
	t     testing.TB
	base  string
	calls *json.Encoder
	lines *bufio.Reader
	known []string // parts of problems that the test brings about
}

// ofChromium matches the hosts that Chromium itself asks on any page.
var ofChromium = regexp.MustCompile(`^[\w.-]+\.(google|googleapis|gvt1)\.com(:\d+)?$`)

type object = map[string]any

// chromium starts a browser for the console of b, with the options of a context of Playwright.
func (b *browser) chromium(options object) *chromium {
	b.t.Helper()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ofChromium.MatchString(r.Host) {
			b.t.Errorf("a request to another host: %s %s", r.Method, r.RequestURI)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	b.t.Cleanup(elsewhere.Close)
	program, err := exec.LookPath("chromium")
	folder, found := servers.Folder()
	if _, missing := os.Stat(filepath.Join(folder, "browser")); err != nil || !found || missing != nil {
		b.t.Fatal("Chromium, Node.js or playwright-core is missing; run scripts/servers browser")
	}
	cmd := exec.CommandContext(b.t.Context(), "node", filepath.Join("testdata", "browser", "driver.js"), program, b.base, elsewhere.URL)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(folder, "browser", "node_modules"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Cancel = in.Close // the driver then ends the browser and itself
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Wait() })
	c := &chromium{t: b.t, base: b.base, calls: json.NewEncoder(in), lines: bufio.NewReader(out)}
	c.do("", "open", options)
	return c
}

// do calls a function of the driver or a method of the page, or of the locator of a selector, and
// returns its result as JSON has it.
func (c *chromium) do(on, call string, args ...any) any {
	c.t.Helper()
	if err := c.calls.Encode(object{"on": on, "call": call, "args": args}); err != nil {
		c.t.Fatalf("%s %s: %v", on, call, err)
	}
	line, err := c.lines.ReadBytes('\n')
	var answer struct {
		Result   any
		Error    string
		Problems []string
	}
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil || answer.Error != "" {
		c.t.Fatalf("%s %s: %v %s %q", on, call, err, answer.Error, answer.Problems)
	}
	for _, problem := range answer.Problems {
		if !slices.ContainsFunc(c.known, func(part string) bool { return strings.Contains(problem, part) }) {
			c.t.Errorf("%s %s %q: %s", on, call, args, problem)
		}
	}
	return answer.Result
}

// open opens a page of the console, which has no violation of accessibility, and checks its status.
func (c *chromium) open(path string, status int) {
	c.t.Helper()
	if status >= 400 {
		c.known = append(c.known, fmt.Sprintf("the server responded with a status of %d", status))
	}
	if got := c.do("", "goto", path); got != float64(status) {
		c.t.Errorf("%s: %v instead of %d", path, got, status)
	}
	c.do("#searching", "waitFor", object{"state": "detached"}) // a page that still searches goes to its answer by itself
	c.accessible()
}

// accessible checks the page with all rules of axe-core.
func (c *chromium) accessible() {
	c.t.Helper()
	for _, violation := range c.do("", "axe").([]any) {
		c.t.Error(violation)
	}
}

// shows waits until the first element of a selector has all texts.
func (c *chromium) shows(on string, texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		quoted, _ := json.Marshal(text)
		c.do(fmt.Sprintf("%s >> internal:has-text=%si", on, quoted), "waitFor")
	}
}

func (c *chromium) text(on string) string {
	c.t.Helper()
	return c.do(on, "textContent").(string)
}
