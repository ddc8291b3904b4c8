package session

import (
	"errors"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// States of a MySQL error. The set is closed because it is a metric's label.
const (
	// unreachable or temporarily unavailable: the network, a restart, a failover, too many
	// connections
	StateAway = "mysql"
	StateFull = "mysql full" // it cannot store more: a disk, a tablespace, a quota
	// it responds but does not accept a statement: a privilege, a table, a trigger
	StateRefused = "mysql refused"
	// it serves reads, but a COMMIT does not return: a full disk, a missing replica
	StateHung = "mysql hung"
)

// States lists all results of State.
func States() []string { return []string{StateAway, StateFull, StateRefused, StateHung} }

// State classifies an error of MySQL. It returns StateAway for any other error.
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

// isFull reports whether the server could not store data. Errors of the operating system come with
// several error numbers, so the message is checked for their texts.
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
