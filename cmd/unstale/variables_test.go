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
	delete(env, "UNSTALE_BATCHROWS")
	if r := call(t, env, "version"); r.code != exitDone || r.err != "" {
		t.Errorf("%+v", r)
	}
}
