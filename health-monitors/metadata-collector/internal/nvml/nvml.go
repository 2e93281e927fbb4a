// Package nvml reads the GPUs of the node through the driver's library, and is
// the one package here that needs cgo. A missing function of the library, or a
// driver that hangs, takes its process along: package probe runs it in one of its
// own.
package nvml
