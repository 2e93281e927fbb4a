// Package nvml reads the GPUs of the node through the driver's library, and is the one
// package here that needs cgo. A missing function of the library, or a driver that hangs,
// takes its process along: a Driver asks in a process of its own. Between two queries
// nobody holds the driver, so that it can be reloaded.
package nvml
