package main

import (
	"strings"
	"testing"
)

// A variable that is spelled wrong has no effect, and that is said.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"UNSTALE_BATCHROWS": "7", "UNSTALE_MAP": "m", "UNSTALE_LISTEN": "-", "APP_ENV": "prod",
		"UNSTALE_SERVICE_HOST": "10.0.0.1", "UNSTALE_PORT": "tcp://10.0.0.1:9117", "UNSTALE_PORT_9117_TCP_ADDR": "10.0.0.1", "UNSTALE_METRICS_SERVICE_PORT_HTTP": "9117",
	}
	r := call(t, env, "map", "check", shippedMap)
	if r.code != exitDone || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, `level=WARN msg="unknown variables have no effect" names=UNSTALE_BATCHROWS nearest=UNSTALE_BATCH_ROWS`) {
		t.Errorf("%+v", r)
	}
	env["UNSTALE_FOO"] = "1" // nothing has a name like that
	if r := call(t, env, "version"); !strings.Contains(r.err, "names=\"UNSTALE_BATCHROWS UNSTALE_FOO\" nearest=UNSTALE_BATCH_ROWS\n") &&
		!strings.Contains(r.err, "names=\"UNSTALE_FOO UNSTALE_BATCHROWS\" nearest=UNSTALE_BATCH_ROWS\n") {
		t.Errorf("%+v", r)
	}
	delete(env, "UNSTALE_BATCHROWS")
	if r := call(t, env, "version"); !strings.HasSuffix(r.err, "names=UNSTALE_FOO\n") {
		t.Errorf("%+v", r)
	}
	delete(env, "UNSTALE_FOO")
	if r := call(t, env, "version"); r.code != exitDone || r.err != "" {
		t.Errorf("%+v", r)
	}
}
