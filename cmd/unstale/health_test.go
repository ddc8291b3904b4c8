package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// The probe of the container returns the results of /readyz and /healthz.
func TestHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start("--listen", "127.0.0.1:0")
	serving := regexp.MustCompile(`"address":"([^"]+)"`)
	var listen string
	r.until("the worker serves", func() bool {
		if m := serving.FindStringSubmatch(r.log.String()); m != nil {
			listen = m[1]
		}
		return listen != "" && r.log.has("working")
	})
	env := map[string]string{"UNSTALE_LISTEN": listen, "HTTP_PROXY": "http://127.0.0.1:1"}
	for _, args := range [][]string{{"health"}, {"health", "--alive"}, {"health", "--listen", strings.Replace(listen, "127.0.0.1", "", 1)}} {
		if got := call(t, env, args...); got.code != exitDone || got.out != "ok\n" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if err := w.server.Pause(); err != nil {
		t.Fatal(err)
	}
	r.until("the worker is not ready", func() bool { return call(t, env, "health").code == exitFail })
	if got := call(t, env, "health"); !strings.Contains(got.err, "the worker does not work: ") {
		t.Errorf("%+v", got)
	}
	if got := call(t, env, "health", "--json"); got.code != exitFail || !strings.Contains(got.out, `"ok": false`) || !strings.Contains(got.out, "the worker does not work: ") {
		t.Errorf("%+v", got)
	}
	if got := call(t, env, "health", "--alive"); got.code != exitDone {
		t.Errorf("an outage is no reason to restart: %+v", got)
	}
}

// A server that is not a worker is not mistaken for one.
func TestHealthRefuses(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	address := strings.TrimPrefix(stranger.URL, "http://")
	for listen, want := range map[string]result{
		address:       {code: exitFail, err: "unstale: ask the worker: http://" + address + "/readyz answers 404 Not Found; is that unstale?\n"},
		"127.0.0.1:1": {code: exitFail, err: "unstale: ask the worker: Get \"http://127.0.0.1:1/readyz\": dial tcp 127.0.0.1:1: connect: connection refused\n"},
		"-":           {code: exitUsage, err: "unstale: --listen is -: the worker serves nothing that could be asked\nSee 'unstale health --help'.\n"},
		"9117":        {code: exitUsage, err: "unstale: --listen \"9117\": must be host:port\nSee 'unstale health --help'.\n"},
	} {
		if got := call(t, nil, "health", "--listen", listen); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}
