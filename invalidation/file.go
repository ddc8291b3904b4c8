package invalidation

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxMapBytes bounds the file of a map.
const maxMapBytes = 32 << 20

// ReadFile reads the file of a map: a regular file, or a symbolic link to one, of at most 32 MiB.
// It never blocks: it refuses a pipe.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read map: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read map: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read map: %s is not a regular file (%s); write the map to one and name that", path, info.Mode())
	}
	src, err := io.ReadAll(io.LimitReader(f, maxMapBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read map: %w", err)
	case len(src) > maxMapBytes:
		return nil, fmt.Errorf("read map: %s has more than %d MiB; is it a map?", path, maxMapBytes>>20)
	}
	return src, nil
}
