//go:build !linux

package bench

// pin does nothing: only Linux is known to it.
func pin(...int) (unpin func() error, err error) { return func() error { return nil }, nil }
