package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// canaryPollInterval is how often the store is asked for the canary.
const canaryPollInterval = 20 * time.Millisecond

// flight is how a canary came.
type flight struct {
	Node  string `json:"node"`
	Event string `json:"event"`
	// Took is from the asking to the finding in the store, Requested the part until the
	// API server had the asking, in milliseconds by the clock of this machine.
	Took      int64 `json:"tookMilliseconds"`
	Requested int64 `json:"askedMilliseconds"`
	// Accepted is from the moment in which the connector had heard of it to its
	// acceptance at the ingest endpoint, by the clock of the node.
	Accepted int64 `json:"acceptedMilliseconds"`
}

func canaryCommand(o *options) *cobra.Command {
	var patience time.Duration
	c := &cobra.Command{
		Use:   "canary <node>",
		Short: "Send a PERSIST_ONLY test event from a node connector to the store and report the latency",
		Long: `Send a canary event. The command writes an annotation on the Node with your permissions (patch
nodes). It requests an event from the connector of the node through its own socket. The event
is healthy and PERSIST_ONLY, so no service acts on it. It passes the write-ahead log, the
pipeline and the gateway to the store. The command only reads the store, and removes the
annotation at the end.
` + exitCodes,
		Example: "  nvsentinel canary gpu-1",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.canary(c.Context(), args[0], patience)
		},
	}
	c.Flags().DurationVar(&patience, "wait", time.Minute, "Time to wait for the event in the store.")
	return c
}

func (o *options) canary(ctx context.Context, node string, patience time.Duration) error {
	sources, done := o.open(ctx)
	defer done()
	if err := o.needs(ctx, "sending a canary", sources); err != nil {
		return err
	}
	cluster, err := o.writer()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, err := o.fly(bounded, cluster, sources.Records, node)
	if err != nil {
		return coded{err, ExitFailed}
	}
	return o.print(f, f.write)
}

// fly asks for a canary and waits for it in the store.
func (o *options) fly(ctx context.Context, cluster *kube.Client, records store.Reader, node string) (f flight, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return f, err
	}
	f.Node, f.Event = node, id.String()
	began := o.program.Clock.Now()
	if err := annotate(ctx, cluster, node, nodemark.CanaryAnnotation, &f.Event); err != nil {
		return f, fmt.Errorf("requesting a canary on node %s: %w", node, err)
	}
	f.Requested = o.program.Clock.Since(began).Milliseconds()
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.within)
		defer cancel()
		if left := annotate(after, cluster, node, nodemark.CanaryAnnotation, nil); left != nil {
			err = errors.Join(err, fmt.Errorf("removing the annotation %s: %w", nodemark.CanaryAnnotation, left))
		}
	}()
	r, err := arrival(ctx, records, f.Event)
	if err != nil {
		return f, fmt.Errorf("event %s is not in the store: check the log of the connector of node %s for \"canary\", "+
			"and its readiness: %w", f.Event, node, err)
	}
	f.Took = o.program.Clock.Since(began).Milliseconds()
	f.Accepted = r.CreatedAt.Sub(r.Event.GeneratedTimestamp).Milliseconds()
	return f, nil
}

// arrival waits for a record.
func arrival(ctx context.Context, records store.Reader, id string) (r record.Record, err error) {
	var last error
	err = wait.PollUntilContextCancel(ctx, canaryPollInterval, true, func(ctx context.Context) (bool, error) {
		r, last = records.Get(ctx, id)
		if errors.Is(last, store.ErrNotFound) {
			last = nil
			return false, nil
		}
		return last == nil, nil
	})
	if err != nil {
		return r, errors.Join(err, last)
	}
	return r, nil
}

func (f flight) write(w io.Writer, _ timeline.Style) error {
	_, err := fmt.Fprintf(w, `canary of node %s: %d ms from the request to the store
  %d ms until the API server stored the request
  %d ms from the connector, through its socket, to the disk (by the clock of the node)
  event %s, PERSIST_ONLY, leads to no action
`, f.Node, f.Took, f.Requested, f.Accepted, f.Event)
	return err
}
