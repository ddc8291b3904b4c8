package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// childVariable makes the test binary be unstale itself: tests that kill processes need a real one,
// and this one is built with the race detector when they are.
const childVariable = "UNSTALE_TEST_BE_UNSTALE"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	testenv.Main(m)
}

// A result is the output of a command and its exit code.
type result struct {
	code     int
	out, err string
}

// withAppEnv returns env with APP_ENV=prod, unless env has another value.
func withAppEnv(env map[string]string) map[string]string {
	all := map[string]string{"APP_ENV": "prod"}
	maps.Copy(all, env)
	return all
}

// call runs a command line in this process. env, with APP_ENV, is all of its environment, apart from
// GOMEMLIMIT. A worker would otherwise limit the memory of all tests, which then take 70 % more
// processor time, for garbage collection.
func call(t testing.TB, env map[string]string, args ...string) result {
	t.Helper()
	env = withAppEnv(env)
	env["GOMEMLIMIT"] = "off"
	var out, err bytes.Buffer
	code := execute(t.Context(), process{
		Args: args, Out: &out, Err: &err,
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Vars: func() (all []string) {
			for name, value := range env {
				all = append(all, name+"="+value)
			}
			return all
		},
	})
	return result{code, out.String(), err.String()}
}

// child prepares a command line as a separate process, with only env and APP_ENV in its
// environment.
func child(ctx context.Context, env map[string]string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = testenv.Environ(childVariable+"=1", "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"))
	for name, value := range withAppEnv(env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
