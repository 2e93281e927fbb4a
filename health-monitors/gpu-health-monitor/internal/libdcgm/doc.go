// Package libdcgm talks to DCGM's library through go-dcgm. It is the only package
// that needs cgo, and it only ever runs in the process of package worker: a call of
// the library cannot be cancelled, its connection belongs to the whole process, and
// a function that an older library lacks ends the process.
package libdcgm
