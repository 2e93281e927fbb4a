package localcluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken below the range the kernel gives to outgoing connections, so that a stopped API
// server finds its port free again.
const (
	lowestPort  = 20000
	highestPort = 30000
	portTries   = 200
)

// freePort returns a loopback port nobody listens on at this moment.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := config.Listen(ctx, "tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("releasing port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("choosing a port: none of %d tried is free", portTries)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
