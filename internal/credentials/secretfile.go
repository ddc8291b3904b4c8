package credentials

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// SecretSuffix ends the name of a variable that holds the path of a file with the value.
const SecretSuffix = "_FILE"

// ReadSecret returns the content of a file without newlines at its end. An empty file is an error, since
// a program may just be writing it. So are several lines: a comment would become part of a secret.
func ReadSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err // it names the path
	}
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case text == "":
		return "", errors.New(path + " is empty")
	case strings.ContainsAny(text, "\r\n"):
		return "", errors.New(path + " has several lines; write the secret alone, in one line")
	}
	return text, nil
}

// SecretFromEnv returns the path in variable NAME_FILE and the content of that file, or the value of
// variable
// NAME and no path. It returns an error if both are set. An empty variable counts as unset. lookup
// works like os.LookupEnv.
func SecretFromEnv(name string, lookup func(string) (string, bool)) (value, path string, err error) {
	value, _ = lookup(name)
	path, _ = lookup(name + SecretSuffix)
	switch {
	case path == "":
		return value, "", nil
	case value != "":
		return "", "", fmt.Errorf("%s and %s%s are both set; unset one of them", name, name, SecretSuffix)
	}
	if value, err = ReadSecret(path); err != nil {
		return "", "", fmt.Errorf("%s%s: %w", name, SecretSuffix, err)
	}
	return value, path, nil
}
