package desk

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nvidia/nvsentinel/internal/kube"
)

const (
	// maxNotes bounds the Events that wait to be written.
	maxNotes = 4096
	// noteWriters is how many Events are written at once.
	noteWriters = 2
	// notesPerSecond and notesAtOnce are the pace of Events: in a storm the nodes
	// come first. An Event bears the time of what it tells.
	notesPerSecond, notesAtOnce = 20, 20
	// noteTime bounds the writing of one Event.
	noteTime = 10 * time.Second
)

// Notes writes Events besides the work, so that in a burst of faults no node
// waits for the Event of another. It is bounded: what finds no room is counted
// and lost, and so is what waits when the process ends.
type Notes struct {
	client  kubernetes.Interface
	log     *slog.Logger
	lost    prometheus.Counter
	waiting chan note
	pace    flowcontrol.RateLimiter
}

// note is an Event to be written.
type note struct {
	node  *corev1.Node
	event kube.NodeEvent
	at    time.Time
}

// NewNotes makes a writer of Events; Run writes them. Lost ones are counted.
func NewNotes(client kubernetes.Interface, log *slog.Logger, lost prometheus.Counter) *Notes {
	return &Notes{
		client: client, log: log, lost: lost, waiting: make(chan note, maxNotes),
		pace: flowcontrol.NewTokenBucketRateLimiter(notesPerSecond, notesAtOnce),
	}
}

func (n *Notes) add(x note) {
	select {
	case n.waiting <- x:
	default:
		n.lost.Inc()
	}
}

// Run writes Events until ctx ends.
func (n *Notes) Run(ctx context.Context) error {
	var writers sync.WaitGroup
	for range noteWriters {
		writers.Go(func() {
			for {
				select {
				case x := <-n.waiting:
					if n.pace.Wait(ctx) == nil {
						x.write(ctx, n.client, n.log)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	writers.Wait()
	return nil
}

func (x note) write(ctx context.Context, client kubernetes.Interface, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if err := kube.RecordNodeEvent(ctx, client, x.node, x.event, x.at); err != nil {
		log.Warn("event not recorded", "node", x.node.Name, "reason", x.event.Reason, "error", err)
	}
}
