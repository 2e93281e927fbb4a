// Package nvml reads the GPUs of the node through the driver's library, and is
// the one package here that needs cgo. A missing function of the library, or a
// driver that hangs, takes its process along: a Driver asks in a process of its own.
// Between two looks nobody holds the driver, which may be loaded again.
package nvml
