// Package output prints JSON for --json.
package output

import (
	"encoding/json"
	"fmt"
	"io"
)

// JSON writes v as one indented object; keys and patterns stay readable.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
