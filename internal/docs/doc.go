// Package docs tests that README, docs, the compose file and the Dockerfile match the program. It
// has tests only.
package docs
