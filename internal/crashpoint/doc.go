// Package crashpoint marks the places of a service where its process is killed
// by the crash tests. Without the build tag "crashpoints" every call is empty
// and compiled away. With it, the environment says what happens:
//
//	NVSENTINEL_CRASH=point[:N],...  the N-th hit (default the first) of a point kills the process
//	NVSENTINEL_CRASH_ONCE=DIR       a point kills only once, however often the service restarts
//	NVSENTINEL_CRASH_LOG=FILE       every hit appends a line "service point"
//	NVSENTINEL_SABOTAGE=a,b         Sabotaged answers true for these names
//
// Point names are "<service>/<place>"; the four places of a handler are
// observed, decided, done and stamped.
package crashpoint
