// Command node-connector is the connector of a node: it makes health events durable,
// acknowledges them, and carries them to a gateway and to Kubernetes. It holds no account
// of the record store, and links no database.
package main

import (
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

// purpose is the first sentence of the help.
const purpose = "node-connector accepts health events on a node, writes them to a write-ahead log, and forwards them to a gateway and to Kubernetes."

func main() { daemon.Main("node-connector", purpose, nodeconnector.Default(), nodeconnector.Build) }
