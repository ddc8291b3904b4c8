package testenv

import (
	"errors"
	"fmt"
)

// choose tries sources in order and returns the first available server. If a source has none and
// another source follows, it prints one line.
func choose[T any](what string, sources []source, get func(source) (T, error), say func(format string, args ...any)) (T, source, error) {
	var (
		none     T
		problems []error
	)
	for i, from := range sources {
		server, err := get(from)
		if err == nil {
			return server, from, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", from, err))
		if i+1 < len(sources) {
			say("%v; going on with %s servers", err, sources[i+1])
		}
	}
	return none, "", fmt.Errorf("no %s for the tests: %w", what, errors.Join(problems...))
}
