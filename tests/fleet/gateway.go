package fleet

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/freeport"
)

// gatewayAudience is that of the tokens with which connectors go to the gateway.
const gatewayAudience = "gateway.nvsentinel.nvidia.com"

// gateway starts the gateway between the connectors of the nodes and the store, with the
// certificate of the API server, which is for this machine. Its port is its own: it comes
// back there from a death.
func (f *Fleet) gateway(ctx context.Context) error {
	port, err := freeport.Find(ctx)
	if err != nil {
		return err
	}
	f.gatewayAddress = fmt.Sprintf("127.0.0.1:%d", port)
	pki := filepath.Join(f.Cluster.Dir(), "pki")
	args := []string{
		"--role", "gateway", "--gateway-listen", f.gatewayAddress, "--inspect-address", "",
		"--gateway-cert-file", filepath.Join(pki, "apiserver.crt"), "--gateway-key-file", filepath.Join(pki, "apiserver.key"),
		"--gateway-accounts", "system:serviceaccount:nvsentinel:" + Connector,
		"--store", f.DSN, "--single-host", "--kubeconfig", f.kube[Gateway], "--metrics-address", "127.0.0.1:0",
	}
	if f.options.Publishers != "" {
		args = append(args, "--config", f.options.Publishers)
	}
	f.launch(Gateway, "", "platform-connectors", append(args, f.options.GatewayFlags...)...)
	return nil
}

// connectorFlags are those of a node's connector.
func (f *Fleet) connectorFlags(node string) []string {
	args := []string{
		"--node-name", node, "--socket", f.Socket(node), "--wal-dir", filepath.Join(f.machine(node), "spool"),
		"--gateway", f.gatewayAddress, "--gateway-ca-file", filepath.Join(f.Cluster.Dir(), "pki", "ca.crt"), "--gateway-token-file", f.gatewayToken(node),
		"--kubeconfig", f.kubeconfig(node), "--metrics-address", "127.0.0.1:0",
	}
	if f.options.Publishers != "" {
		args = append(args, "--config", f.options.Publishers)
	}
	return append(args, f.options.ConnectorFlags...)
}
