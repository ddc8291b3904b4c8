package store

import (
	"errors"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// What an error of MySQL may be. The set is closed, so that it can be a metric's label.
const (
	StateAway    = "mysql"         // no answer, or not now: the network, a restart, a failover, too many connections
	StateFull    = "mysql full"    // it cannot store more: a disk, a tablespace, a quota
	StateRefused = "mysql refused" // it answers, and does not accept a statement: a right, a table, a trigger
	StateHung    = "mysql hung"    // it answers reads, and a COMMIT does not return: a full disk, a missing replica
)

// States lists what State may return.
func States() []string { return []string{StateAway, StateFull, StateRefused, StateHung} }

// State says what an error of a Store is. An error of something else is StateAway.
func State(err error) string {
	var hung *HungError
	switch {
	case errors.As(err, &hung):
		return StateHung
	case isFull(err):
		return StateFull
	case IsRefusal(err):
		return StateRefused
	}
	return StateAway
}

// isFull reports whether the server could not store something. Where the operating system said so its words are in the
// message, under several numbers.
func isFull(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.FullDisk, mysqlerr.DiskFull, mysqlerr.TableFull, mysqlerr.DiskFullAtOnce:
		return true
	case 0:
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}
