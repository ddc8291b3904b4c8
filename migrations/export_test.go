package migrations

import (
	"io/fs"

	"github.com/pressly/goose/v3"
)

// Files makes Up and Down take the steps of other files than the embedded ones.
func Files(files fs.FS) Option { return func(s *stepper) { s.files = files } }

// PreviewOf returns the preview of a file with a text.
func PreviewOf(text string) Preview { return preview(&goose.Source{}, text) }
