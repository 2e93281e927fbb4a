package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

// TestItLinksNoDatabase: root on a node finds neither an account of the store nor
// what one could be used with. Nor does it link every API of Kubernetes, which would be
// a quarter of its memory.
func TestItLinksNoDatabase(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("%d packages: too few to mean anything", len(packages))
	}
	for _, p := range packages {
		for _, part := range []string{
			"jackc/pgx", "mongo-driver", "sqlite", "store-client/storeopen", "store-client/internal", "client-go/kubernetes", "client-go/informers",
		} {
			if strings.Contains(p, part) {
				t.Errorf("it links %s", p)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	good := nodeconnector.Default()
	good.NodeName, good.Gateway.Address = "gpu-7", "gateway.nvsentinel.svc:8443"
	if err := good.Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	bad := nodeconnector.Config{Gateway: upstream.Config{Address: "gateway", CertFile: "x"}}
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--node-name", "--gateway)", "--gateway-token-file", "--gateway-ca-file", "--gateway-key-file"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
}
