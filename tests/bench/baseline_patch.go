package bench

import (
	"context"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// recordBytes is about the size of a stored record, markBytes of the marks
// that a cordon puts on a Node.
const (
	recordBytes = 1100
	markBytes   = 1000
)

var (
	cordonPatch = `{"spec":{"unschedulable":true},"metadata":{"annotations":{"bench/floor":"` + strings.Repeat("x", markBytes) + `"}}}`
	undoPatch   = `{"spec":{"unschedulable":null},"metadata":{"annotations":{"bench/floor":null}}}`
)

// patchBaseline is how long it takes to patch all nodes, every patch in flight at
// once; then the patches are taken back.
func patchBaseline(ctx context.Context, client kubernetes.Interface, nodes []string) (time.Duration, error) {
	began := time.Now()
	err := atOnce(len(nodes), len(nodes), func(i int) error { return patchNode(ctx, client, nodes[i], cordonPatch) })
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, atOnce(len(nodes), len(nodes), func(i int) error { return patchNode(ctx, client, nodes[i], undoPatch) })
}
