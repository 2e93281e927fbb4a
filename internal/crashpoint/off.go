//go:build !crashpoints

package crashpoint

// Enabled says that the build has crash points.
const Enabled = false

// Here marks a place where a crash test may kill the process.
func Here(string) {}

// DieOf ends the process at a text that a crash test has marked as fatal to a service.
func DieOf(_, _ string) {}

// Sabotaged tells whether a crash test asked for a named fault of ours.
func Sabotaged(string) bool { return false }
