package worker

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/otlp"
)

// TracingFromEnv reads the standard variables of OpenTelemetry that say where spans go; lookup is os.LookupEnv, mostly. It
// returns the zero Tracing where they name no endpoint or switch traces off, whatever else is set. A variable that cannot be
// followed is an error, which names it and shows no secret: docs/tracing.md lists them.
func TracingFromEnv(lookup func(name string) (value string, ok bool)) (Tracing, error) {
	env := tracingEnv(func(name string) string {
		value, _ := lookup(name) // an empty variable counts as unset
		return strings.TrimSpace(value)
	})
	endpoint := env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := env("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" && base != "" {
		endpoint = belowBase(base)
	}
	if endpoint == "" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return Tracing{}, nil
	}
	if err := env.refuse(); err != nil {
		return Tracing{}, err
	}
	t := Tracing{Endpoint: endpoint}
	if err := otlp.CheckEndpoint(endpoint); err != nil {
		return Tracing{}, fmt.Errorf("variable %s: %w", env.either("ENDPOINT"), err)
	}
	t.Gzip = env(env.either("COMPRESSION")) == "gzip"
	var err error
	if t.Headers, err = env.headers(env.either("HEADERS")); err != nil {
		return Tracing{}, err
	}
	if t.Timeout, err = env.timeout(env.either("TIMEOUT")); err != nil {
		return Tracing{}, err
	}
	if t.Resource, err = env.pairs("OTEL_RESOURCE_ATTRIBUTES"); err != nil {
		return Tracing{}, err
	}
	if name := env("OTEL_SERVICE_NAME"); name != "" {
		if t.Resource == nil {
			t.Resource = map[string]string{}
		}
		t.Resource["service.name"] = name
	}
	return t, nil
}

// A tracingEnv gives the value of a variable, "" if it is not set.
type tracingEnv func(name string) string

// either is the name of the variable that counts: that for traces, or that for all signals.
func (env tracingEnv) either(name string) string {
	if traces := "OTEL_EXPORTER_OTLP_TRACES_" + name; env(traces) != "" {
		return traces
	}
	return "OTEL_EXPORTER_OTLP_" + name
}

// refuse names a variable that asks for what is not there. To go on without it would send spans elsewhere than is meant.
func (env tracingEnv) refuse() error {
	for _, r := range []struct{ name, wanted, cure string }{
		{
			env.either("PROTOCOL"), "http/json",
			"set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json, with an endpoint that takes it, often on port 4318; OTEL_TRACES_EXPORTER=none switches spans off",
		},
		{env.either("COMPRESSION"), "none gzip", "set OTEL_EXPORTER_OTLP_TRACES_COMPRESSION to one of them"},
		{env.either("CERTIFICATE"), "", "add the certificate to those of the system, or name it in SSL_CERT_FILE"},
		{env.either("CLIENT_CERTIFICATE"), "", "send to a collector nearby, which has the certificate"},
		{"OTEL_TRACES_EXPORTER", "otlp", "leave it out; none switches spans off"},
	} {
		if value := env(r.name); value != "" && (r.wanted == "" || !slices.Contains(strings.Fields(r.wanted), value)) {
			if r.wanted == "" {
				return fmt.Errorf("variable %s cannot be followed: %s", r.name, r.cure)
			}
			return fmt.Errorf("variable %s %q: spans are sent as %s alone; %s", r.name, value, strings.ReplaceAll(r.wanted, " ", " or "), r.cure)
		}
	}
	return nil
}

func (env tracingEnv) headers(name string) (map[string]string, error) {
	headers, err := env.pairs(name)
	if err != nil {
		return nil, err
	}
	for header, value := range headers {
		if err := otlp.CheckHeader(header, value); err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	return headers, nil
}

func (env tracingEnv) timeout(name string) (time.Duration, error) {
	text := env(name)
	if text == "" {
		return defaultSpanTimeout, nil
	}
	millis, err := strconv.Atoi(text)
	if err != nil || millis < 1 || millis > 300_000 {
		return 0, fmt.Errorf("variable %s %q: wanted milliseconds, 1 to 300000", name, text)
	}
	return time.Duration(millis) * time.Millisecond, nil
}

// pairs reads a variable such as "name=value,other=with%20space". Its values may be secrets.
func (env tracingEnv) pairs(name string) (map[string]string, error) {
	text := env(name)
	if text == "" {
		return nil, nil
	}
	pairs := map[string]string{}
	for n, pair := range strings.Split(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			return nil, fmt.Errorf("variable %s, entry %d: wanted name=value, with %%XX for what has a meaning in it", name, n+1)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// belowBase is where traces go below the address of a collector.
func belowBase(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base // which is refused, with the reason
	}
	return u.JoinPath("v1/traces").String()
}
