// Command node-connector is the connector of a node: it makes health events durable,
// acknowledges them, and carries them to a gateway and to Kubernetes. It holds no account
// of the record store, and links no database.
package main

import (
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

func main() { daemon.Main("node-connector", nodeconnector.Default(), nodeconnector.Build) }
