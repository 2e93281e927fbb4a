//go:build !linux

package testkit

import "os/exec"

// StartChild starts a process; on Linux it ends with the test's own.
func StartChild(cmd *exec.Cmd) error { return cmd.Start() }
