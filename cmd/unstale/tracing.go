package main

import "github.com/unstale/unstale/worker"

// tracing says where spans go, by the standard variables of OpenTelemetry.
func tracing(p process) (worker.Tracing, error) {
	t, err := worker.TracingFromEnv(p.Env)
	if err != nil {
		return t, usageError{err}
	}
	if t.Endpoint != "" && t.Resource["service.version"] == "" {
		if t.Resource == nil {
			t.Resource = map[string]string{}
		}
		t.Resource["service.version"] = versionText()
	}
	return t, nil
}
