package localcluster_test

import (
	"os"
	"testing"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

func TestClusterRunsWorkloads(t *testing.T) {
	c, err := localcluster.Start(t.Context(), localcluster.Options{Controllers: true, Nodes: 3, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
}
func TestAPI(t *testing.T) {
	c := localcluster.ForTest(t, localcluster.Options{Nodes: 2})
	t.Log(c.Namespace(t))
}
