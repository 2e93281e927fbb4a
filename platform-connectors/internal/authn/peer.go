package authn

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
)

// User is the process at the other end of the Unix socket, as the kernel saw it
// when it connected.
type User struct {
	credentials.CommonAuthInfo

	UID, GID uint32
	PID      int32
}

// AuthType names the source of the credentials.
func (User) AuthType() string { return "unix-peer" }

// Peers are transport credentials that ask the kernel who connects. They change
// nothing on the wire, so that any client without credentials of its own can
// connect. A connection whose peer the kernel does not report is let through
// without a User; the policy decides what that may do.
type Peers struct{ Log *slog.Logger }

// ServerHandshake asks for the peer of a new connection and logs it.
func (p Peers) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	user, err := userOf(conn)
	if err != nil {
		p.Log.Warn("peer credentials unavailable", "error", err)
		return conn, anonymous{}, nil
	}
	p.Log.Debug("publisher connected", "uid", user.UID, "gid", user.GID, "pid", user.PID)
	return conn, user, nil
}

// ClientHandshake is not for a server.
func (Peers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("unix peer credentials are available on servers only")
}

// Info describes the credentials.
func (Peers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone returns the same credentials, which hold no state.
func (p Peers) Clone() credentials.TransportCredentials { return p }

// OverrideServerName has no meaning for a socket.
func (Peers) OverrideServerName(string) error { return nil }

// anonymous is a peer that the kernel does not report.
type anonymous struct{ credentials.CommonAuthInfo }

func (anonymous) AuthType() string { return "insecure" }
