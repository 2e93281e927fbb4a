package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	// address of the node, of the API server and of everything that is played.
	address = "10.99.0.1"
	// podRange is the pods' addresses.
	podRange = "10.88.0.0/16"
	// databaseName and rackName are names of address.
	databaseName = "db.example.com"
	rackName     = "rack-controller.example.com"
)

// links gives the network namespace an address that pods can reach, and a way out that
// leads nowhere: names and Services are resolved before it.
var links = []string{
	"ip link set lo up",
	"ip link add node0 type veth peer name node1",
	"ip addr add " + address + "/24 dev node0",
	"ip link set node0 up",
	"ip link set node1 up",
	"ip route add default via 10.99.0.254 dev node0",
}

// startNetwork prepares the network namespace, which has nothing yet.
func startNetwork(ctx context.Context) error {
	for _, command := range links {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("letting packets of pods through: %w", err)
	}
	return nil
}
