package clock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Tag is the build tag of programs that are built with an overlay.
const Tag = "clockjump"

// What is replaced in GOROOT's time/time.go, once.
const (
	asItIs  = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	asMoved = asItIs + "\tif ClockJump != nil {\n\t\tsec += *ClockJump\n\t}\n"
	added   = "\n// ClockJump is by how many seconds Now is ahead of the clock.\nvar ClockJump *int64\n"
)

// Overlay writes an overlay of GOROOT's package time to dir, and returns the file for 'go build
// -tags clockjump -overlay'. In programs that are built so, Follow works. It refuses a source that
// it does not know.
func Overlay(goroot, dir string) (file string, err error) {
	original := filepath.Join(goroot, "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("overlay time.Now: %w", err)
	}
	if n := strings.Count(string(text), asItIs); n != 1 {
		return "", fmt.Errorf("overlay time.Now: %s has %d places with the text that is to be replaced, wanted 1: this version of Go has changed it; "+
			"adapt internal/clock/overlay.go", original, n)
	}
	moved := strings.Replace(string(text), asItIs, asMoved, 1) + added
	replacement := filepath.Join(dir, "time.go")
	if err := os.WriteFile(replacement, []byte(moved), 0o600); err != nil {
		return "", fmt.Errorf("overlay time.Now: %w", err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
