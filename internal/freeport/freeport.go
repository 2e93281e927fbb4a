// Package freeport chooses the ports of throw-away servers.
package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are below those that the kernel gives to outgoing connections and to
// listeners that ask for any port: nobody takes one while its server starts,
// or while it is dead and is to come back.
const (
	lowest  = 10000
	highest = 30000
	tries   = 200
)

// Find returns a port of the loopback address that nobody listens on at this
// moment.
func Find(ctx context.Context) (int, error) {
	var config net.ListenConfig
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("releasing port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("finding a free port: none of %d tried is free", tries)
}
