// Package output prints JSON for --json.
package output

import (
	"encoding/json"
	"fmt"
	"io"
)

// JSON writes v as one indented object; keys and patterns stay readable.
func JSON(w io.Writer, v any) error { return write(w, v, "  ") }

// JSONLine writes v as one line.
func JSONLine(w io.Writer, v any) error { return write(w, v, "") }

func write(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
