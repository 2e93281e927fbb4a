// Package crashpoint marks the places of a service where its process is killed
// by the crash tests. Without the build tag "crashpoints" every call is empty
// and compiled away. With it, the environment defines what happens:
//
//	NVSENTINEL_CRASH=point[:N],...  the N-th hit (default the first) of a point kills the process
//	NVSENTINEL_FREEZE=point[:N],... the N-th hit freezes the process (SIGSTOP) until it gets SIGCONT
//	NVSENTINEL_CRASH_ONCE=DIR       a point kills, and freezes, only once, however often the service
//	                                restarts and however many replicas it has
//	NVSENTINEL_CRASH_LOG=FILE       every hit appends a line "service point"
//	NVSENTINEL_FATAL_TEXT=TEXT      DieOf ends the process at a text that contains TEXT
//	NVSENTINEL_CLOCK=FILE           Clock is wrong by the Go duration in FILE while FILE exists
//
// Point names are "<service>/<place>"; the four places of a handler are
// observed, decided, done and stamped.
package crashpoint
