//go:build !linux

package sqlite

// fileID returns an identity on Linux only.
func fileID(string) string { return "" }
