package report

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// window is how many bytes of answers the connector may send ahead; gRPC takes
// no less.
const window = 64 << 10

// Dial prepares a connection to the connector's socket, for example
// unix:///var/run/nvsentinel.sock; a bare path is a socket too. It does not
// wait for the connector. tokenFile, when not empty, holds the bearer token of
// every request and is read for each of them, because it is rotated.
func Dial(target, tokenFile string) (*grpc.ClientConn, error) {
	if strings.HasPrefix(target, "/") {
		target = "unix://" + target
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		// With windows of its own choice gRPC would measure the line with a ping
		// per answer. Answers are empty, and the line is a socket of the node.
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
	}
	if tokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(tokenFile)))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("dialling the platform connector at %s: %w", target, err)
	}
	return conn, nil
}

// token is the path of a file with a bearer token.
type token string

// GetRequestMetadata reads the token as it is now.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	data, err := os.ReadFile(string(t))
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "reading the bearer token: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(data))}, nil
}

// RequireTransportSecurity is false: the transport is a Unix socket of the node.
func (token) RequireTransportSecurity() bool { return false }
