package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

// versionText returns the release, or what the Go toolchain noted about the build.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersion(p process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  unstale version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return output.JSON(p.Out, map[string]string{"version": versionText(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(p.Out, "unstale %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	showEnv(cmd.Flags(), "json")
	return cmd
}
