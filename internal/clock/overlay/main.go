// Command overlay writes an overlay of package time to the folder that it is told, and prints the
// name of the file for 'go build -tags clockjump -overlay'.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/unstale/unstale/internal/clock"
)

func main() {
	if err := printOverlay(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "overlay: %v\n", err)
		os.Exit(1)
	}
}

func printOverlay(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("wanted one folder, got %q", args)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	file, err := clock.Overlay(strings.TrimSpace(string(goroot)), args[0])
	if err == nil {
		fmt.Println(file)
	}
	return err
}
