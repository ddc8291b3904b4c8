// Package tree tests the architecture: allowed imports, the public API, the size of the binary. It
// has tests only.
package tree
