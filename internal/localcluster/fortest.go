package localcluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// testStartLimit leaves time to build the programs on a machine that has none of them.
	testStartLimit = 20 * time.Minute
	testCallLimit  = 2 * time.Minute
)

// TB is the part of testing.TB this package uses.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// shared are the clusters of this test binary by what they consist of.
var shared = struct {
	sync.Mutex
	clusters map[sharedKey]*Cluster
}{clusters: map[sharedKey]*Cluster{}}

// sharedKey is the part of Options by which tests share a cluster.
type sharedKey struct {
	controllers bool
	nodes       int
	nodePrefix  string
	audit       string
}

// ForTest returns the cluster of this test binary that has these options, started by the first
// caller (about three seconds without controllers). Tests keep apart by namespaces and node names.
// Main stops it; without Main it dies with the test binary.
func ForTest(t TB, options Options) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	key := sharedKey{options.Controllers, options.Nodes, options.NodePrefix, options.AuditNamespace}
	if c, ok := shared.clusters[key]; ok {
		if err := c.Failure(); err != nil {
			t.Fatalf("the shared local cluster is broken: %v", err)
		}
		return c
	}
	if options.Progress == nil {
		options.Builder.Progress = io.Writer(os.Stderr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testStartLimit)
	defer cancel()
	c, err := Start(ctx, options)
	if err != nil {
		t.Fatalf("%v", err)
	}
	shared.clusters[key] = c
	return c
}

// Main runs the tests of m (a *testing.M), stops the clusters they shared and returns the exit code.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for key, c := range shared.clusters {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		delete(shared.clusters, key)
	}
	return code
}

// Namespace creates a namespace of the test's own and returns its name. It is deleted, with what
// is in it as far as controllers run, when the test ends.
func (c *Cluster) Namespace(t TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testCallLimit)
	defer cancel()
	name := "test-" + randomHex()
	if err := c.ensureNamespace(ctx, name); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { c.dropNamespace(name) })
	return name
}

// dropNamespace begins the deletion of a namespace and leaves the rest to the cluster: a test that
// stopped the API server or the cluster itself has nothing to clean up.
func (c *Cluster) dropNamespace(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), testCallLimit)
	defer cancel()
	_ = c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
}
