package authn

import (
	"fmt"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// userOf reads SO_PEERCRED of a Unix socket's connection.
func userOf(conn net.Conn) (User, error) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return User{}, fmt.Errorf("connection over %s has no peer credentials", conn.LocalAddr().Network())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return User{}, fmt.Errorf("accessing the socket: %w", err)
	}
	var cred *syscall.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		cred, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return User{}, fmt.Errorf("accessing the socket: %w", err)
	}
	if failure != nil {
		return User{}, fmt.Errorf("reading the peer credentials: %w", failure)
	}
	local := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return User{CommonAuthInfo: local, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}
