//go:build !linux

package servers

import "errors"

func mountMemory(string, int) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
