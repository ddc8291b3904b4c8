package testenv

import "os"

// Environ returns the environment of a program under test: only pairs, and the settings of the
// race detector. Without them, a program that was built for it sleeps for a second as it ends.
func Environ(pairs ...string) []string {
	if race, ok := os.LookupEnv("GORACE"); ok {
		pairs = append(pairs, "GORACE="+race)
	}
	return pairs
}
