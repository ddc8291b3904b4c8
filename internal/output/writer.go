package output

import "io"

// A Writer passes on what a command prints, and remembers the first write that failed, so that
// nobody has to look at each line. Not safe for concurrent use.
type Writer struct {
	To  io.Writer
	Err error // nil unless a write failed
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.To.Write(b)
	if err != nil && w.Err == nil {
		w.Err = err
	}
	return n, err
}
