package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"
)

// logFlags choose how the log looks.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
}

func (f *logFlags) logger(p process) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError{fmt.Errorf("log-level %q: must be debug, info, warn or error", f.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	format := f.format
	if format == "auto" {
		format = "json"
		if onTerminal(p.Err) {
			format = "text"
		}
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(p.Err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.Err, options)), nil
	}
	return nil, usageError{fmt.Errorf("log-format %q: must be auto, text or json", f.format)}
}
