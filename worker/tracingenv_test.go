package worker_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/worker"
)

// The standard variables say where spans go: those for traces beat those for everything.
func TestTracingFromEnv(t *testing.T) {
	t.Parallel()
	const base, all = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
	at := func(endpoint string) worker.Tracing {
		return worker.Tracing{Endpoint: endpoint, Timeout: 10 * time.Second}
	}
	with := func(t worker.Tracing, change func(*worker.Tracing)) worker.Tracing { change(&t); return t }
	here := at("http://here:4318/v1/traces")
	for i, row := range []struct {
		env  []string
		want worker.Tracing
	}{
		{nil, worker.Tracing{}},
		{[]string{base + "PROTOCOL=grpc", base + "TIMEOUT=x", base + "HEADERS=x", "OTEL_SERVICE_NAME=shop"}, worker.Tracing{}},
		{[]string{base + "ENDPOINT="}, worker.Tracing{}},
		{[]string{base + "ENDPOINT=http://here:4318"}, here},
		{[]string{base + "ENDPOINT=http://here:4318/"}, here},
		{[]string{base + "ENDPOINT=https://here/otlp"}, at("https://here/otlp/v1/traces")},
		{[]string{base + "ENDPOINT=http://there", all + "ENDPOINT=http://here:4318/as-it-is?x=y"}, at("http://here:4318/as-it-is?x=y")},
		{[]string{base + "ENDPOINT=http://here:4318", "OTEL_SDK_DISABLED=TRUE"}, worker.Tracing{}},
		{[]string{base + "ENDPOINT=http://here:4318", "OTEL_TRACES_EXPORTER=none", base + "PROTOCOL=grpc"}, worker.Tracing{}},
		{[]string{base + "ENDPOINT=http://here:4318", "OTEL_TRACES_EXPORTER=otlp", "OTEL_SDK_DISABLED=false", base + "PROTOCOL=http/json", base + "COMPRESSION=none"}, here},
		{[]string{base + "ENDPOINT=http://here:4318", base + "PROTOCOL=grpc", all + "PROTOCOL=http/json"}, here},
		{
			[]string{base + "ENDPOINT=http://here:4318", base + "COMPRESSION=gzip", base + "TIMEOUT=2500", base + "HEADERS= api-key = a%3Db%2C ,x=a=b,"},
			with(here, func(w *worker.Tracing) {
				w.Gzip, w.Timeout, w.Headers = true, 2500*time.Millisecond, map[string]string{"api-key": "a=b,", "x": "a=b"}
			}),
		},
		{
			[]string{base + "ENDPOINT=http://here:4318", base + "HEADERS=a=1", all + "HEADERS=b=2", base + "TIMEOUT=1", all + "TIMEOUT=2"},
			with(here, func(w *worker.Tracing) { w.Headers, w.Timeout = map[string]string{"b": "2"}, 2*time.Millisecond }),
		},
		{
			[]string{base + "ENDPOINT=http://here:4318", "OTEL_SERVICE_NAME=shop", "OTEL_RESOURCE_ATTRIBUTES=service.name=other,k8s.pod.name=a%20pod"},
			with(here, func(w *worker.Tracing) {
				w.Resource = map[string]string{"service.name": "shop", "k8s.pod.name": "a pod"}
			}),
		},
	} {
		if got, err := worker.TracingFromEnv(lookup(row.env)); err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%d: %+v, %v; wanted %+v", i, got, err, row.want)
		}
	}
}

// A variable that cannot be followed is named, with the cure, and no secret shows.
func TestTracingFromEnvRefuses(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                 `variable OTEL_EXPORTER_OTLP_PROTOCOL "grpc": spans are sent as http/json alone; set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json, with an endpoint that takes it, often on port 4318; OTEL_TRACES_EXPORTER=none switches spans off`,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf": `variable OTEL_EXPORTER_OTLP_TRACES_PROTOCOL "http/protobuf": spans are sent as http/json alone; `,
		"OTEL_EXPORTER_OTLP_COMPRESSION=zstd":              `variable OTEL_EXPORTER_OTLP_COMPRESSION "zstd": spans are sent as none or gzip alone; set OTEL_EXPORTER_OTLP_TRACES_COMPRESSION to one of them`,
		"OTEL_EXPORTER_OTLP_CERTIFICATE=secret":            "variable OTEL_EXPORTER_OTLP_CERTIFICATE cannot be followed: add the certificate to those of the system, or name it in SSL_CERT_FILE",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=secret":     "variable OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE cannot be followed: send to a collector nearby, which has the certificate",
		"OTEL_TRACES_EXPORTER=zipkin":                      `variable OTEL_TRACES_EXPORTER "zipkin": spans are sent as otlp alone; leave it out; none switches spans off`,
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s":                   `variable OTEL_EXPORTER_OTLP_TIMEOUT "10s": wanted milliseconds, 1 to 300000`,
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=0":              `variable OTEL_EXPORTER_OTLP_TRACES_TIMEOUT "0": wanted milliseconds, 1 to 300000`,
		"OTEL_EXPORTER_OTLP_HEADERS=a=b,secret":            "variable OTEL_EXPORTER_OTLP_HEADERS, entry 2: wanted name=value, with %XX for what has a meaning in it",
		"OTEL_EXPORTER_OTLP_HEADERS=a=secret%zz":           "variable OTEL_EXPORTER_OTLP_HEADERS, entry 1: wanted name=value, with %XX for what has a meaning in it",
		"OTEL_EXPORTER_OTLP_HEADERS=a=secret%0A":           "variable OTEL_EXPORTER_OTLP_HEADERS: the value of the header a has a control character",
		"OTEL_RESOURCE_ATTRIBUTES=a":                       "variable OTEL_RESOURCE_ATTRIBUTES, entry 1: wanted name=value, with %XX for what has a meaning in it",
		"OTEL_EXPORTER_OTLP_ENDPOINT=secret:4318":          "variable OTEL_EXPORTER_OTLP_ENDPOINT: wanted a URL with http or https and a host, such as http://127.0.0.1:4318",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=secret":        "variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: wanted a URL with http or https and a host, such as http://127.0.0.1:4318",
	} {
		_, err := worker.TracingFromEnv(lookup([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://here:4318", variable}))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s\ngot    %v\nwanted %s", variable, err, want)
		}
	}
}

// lookup is os.LookupEnv of an environment in which the last setting of a variable counts.
func lookup(env []string) func(string) (string, bool) {
	return func(name string) (value string, ok bool) {
		for _, pair := range env {
			if n, v, _ := strings.Cut(pair, "="); n == name {
				value, ok = v, true
			}
		}
		return value, ok
	}
}

// What TracingFromEnv refuses, a Config is refused for as well.
func TestTracingIsChecked(t *testing.T) {
	t.Parallel()
	good := worker.Tracing{Endpoint: "http://here/v1/traces"}
	for want, change := range map[string]func(*worker.Tracing){
		"tracing endpoint: wanted a URL with http or https and a host, such as http://127.0.0.1:4318": func(w *worker.Tracing) { w.Endpoint = "here" },
		"tracing timeout 6m0s: wanted 1ms to 5m":                                                      func(w *worker.Tracing) { w.Timeout = 6 * time.Minute },
		"tracing headers: the value of the header key has a control character":                        func(w *worker.Tracing) { w.Headers = map[string]string{"key": "\n"} },
	} {
		cfg := worker.Config{Tracing: good}
		change(&cfg.Tracing)
		if err := cfg.WithDefaults().Validate(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if got := (worker.Tracing{Endpoint: "https://user:secret@here:4318/secret?secret"}).Redacted(); got != "https://here:4318" {
		t.Errorf("redacted: %s", got)
	}
}
