package clock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// follow is nil in a program that was built without an overlay.
var follow func(offset *int64)

// Overlaid reports whether this program was built with an overlay.
func Overlaid() bool { return follow != nil }

// Follow makes time.Now of this process follow the file that its environment names, if it names
// one. Call it before anything that runs beside it.
func Follow() error {
	path := os.Getenv(variable)
	if path == "" {
		return nil
	}
	if !Overlaid() {
		return errors.New("the clock cannot be set: this program was built without the overlay of time.Now")
	}
	file, err := open(path, unix.PROT_READ)
	if err == nil {
		follow(file.offset())
	}
	return err
}
