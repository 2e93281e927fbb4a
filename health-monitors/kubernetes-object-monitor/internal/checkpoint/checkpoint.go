// Package checkpoint keeps the monitor's state in the cluster: one ConfigMap with
// the open faults, the events that wait to be acknowledged, and their counter.
//
// It is there, and not on a disk or on the Nodes, because a new leader on any
// node has to find it, because a fault may outlive its Node, and because a fault
// and its event must become durable in one step: that step is one update of one
// object, and its resourceVersion locks out a leader that does not know yet that
// it leads no more. An event is handed to the publisher only after that step.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Keys of the ConfigMap's binaryData.
const (
	checkpointKey = "checkpoint.json.gz"
	damagedKey    = "checkpoint.damaged"
	// formerCheckpointKey is the former name of checkpointKey, read until v1.0 where there
	// is no other. The first write drops it.
	formerCheckpointKey = "book.json.gz"
)

// writeTime bounds one request.
const writeTime = 15 * time.Second

// sum is the digest of a written state.
type sum = [sha256.Size]byte

// maxSent bounds the requests without an answer that are remembered. No request
// is under way for as long as that many take.
const maxSent = 64

// ErrTaken means that somebody else has written the state: this process must act
// no more.
var ErrTaken = errors.New("the state was written by another process")

// Checkpoint is the state of one leader. Its exported fields are set before Load.
type Checkpoint struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Clock           clock.Clock
	Log             *slog.Logger

	mu      sync.Mutex
	tracker *machine.Tracker
	durable uint64 // events up to this seq are written
	changed chan struct{}
	dirty   chan struct{} // holds a token while something is unwritten
	dead    deadLetters
	// rejected are the objects of policies whose events were rejected lately.
	rejected rejections
	outage   retry.Outage

	object *corev1.ConfigMap // as it was last read or written; Run's alone, like sent
	sent   []sum             // of what was sent since the last answer, in requests that may have arrived
}

// Load reads the state; it tries until the API server answers or ctx ends.
func (c *Checkpoint) Load(ctx context.Context) error {
	c.changed, c.dirty = make(chan struct{}), make(chan struct{}, 1)
	for pace := newPace(); ; {
		object, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			c.object, c.dead = object, readDeadLetters(object.Data)
			return c.open(stateIn(object.BinaryData))
		case apierrors.IsNotFound(err):
			c.object, c.dead = nil, nil
			return c.open(nil)
		}
		c.Log.Warn("state read failed, retrying", "configMap", c.Name, "error", err)
		if !retry.Sleep(ctx, c.Clock, pace.NextBackOff()) {
			return fmt.Errorf("reading the state: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// stateIn is the state in a ConfigMap's binaryData; nil is none.
func stateIn(data map[string][]byte) []byte {
	if state, ok := data[checkpointKey]; ok {
		return state
	}
	return data[formerCheckpointKey]
}

// open decodes the state. A damaged one moves to a backup key, and the monitor begins with
// an empty one. One of a newer version stays as it is.
func (c *Checkpoint) open(data []byte) error {
	tracker, err := machine.Decode(data)
	if errors.Is(err, machine.ErrNewer) {
		return fmt.Errorf("reading the state in ConfigMap %s: %w", c.Name, err)
	}
	if err != nil {
		if c.object != nil {
			c.Log.Error("unreadable state moved to a backup key of the ConfigMap, open faults are unknown", "error", err)
			c.object.BinaryData = map[string][]byte{damagedKey: data}
		}
		epoch, err := uuid.NewRandom()
		if err != nil {
			return fmt.Errorf("generating an epoch: %w", err)
		}
		tracker = machine.New(epoch.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracker, c.durable = tracker, last(tracker)
	return nil
}

func last(t *machine.Tracker) uint64 {
	if w := t.Waiting(); len(w) > 0 {
		return w[len(w)-1].Seq
	}
	return 0
}

// Observe decides about one evaluation and keeps what follows.
func (c *Checkpoint) Observe(s machine.EvaluationResult) (machine.Decision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Delayed = c.rejected.delayed(machine.Rejection{Key: s.Key, IsHealthy: s.Observation != machine.Matched}, c.Clock.Now())
	d, err := c.tracker.Observe(s, newID)
	if d.Recover || d.Report {
		c.touch()
	}
	return d, err
}

// Open lists the keys of the open faults.
func (c *Checkpoint) Open() []machine.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracker.Open()
}

// Size counts the open faults and the events that wait.
func (c *Checkpoint) Size() (open, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracker == nil {
		return 0, 0
	}
	return len(c.tracker.Open()), len(c.tracker.Waiting())
}

// Ready reports whether the last write went well.
func (c *Checkpoint) Ready() (bool, string) { return c.outage.Ready() }

// touch notes a change of the state; the lock is held.
func (c *Checkpoint) touch() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// Run writes the state whenever it has changed, all changes so far in one
// request, until ctx ends. What is unwritten then is found again by the next
// leader, since none of it was published.
func (c *Checkpoint) Run(ctx context.Context) error {
	pace := newPace()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.dirty:
		}
		err := c.write(ctx)
		c.note(err)
		switch {
		case errors.Is(err, ErrTaken):
			return err
		case err == nil:
			pace.Reset()
			continue
		}
		c.mu.Lock()
		c.touch()
		c.mu.Unlock()
		if !retry.Sleep(ctx, c.Clock, pace.NextBackOff()) {
			return nil
		}
	}
}

// note logs the first failure of a row and its end.
func (c *Checkpoint) note(err error) {
	switch begins, ends := c.outage.Note(err); {
	case begins:
		c.Log.Warn("state write failed, events stay pending", "error", err)
	case ends:
		c.Log.Info("state write recovered")
	}
}

func (c *Checkpoint) write(ctx context.Context) error {
	c.mu.Lock()
	snapshot, dead := c.tracker.Copy(), c.dead
	c.mu.Unlock()
	data, err := snapshot.Encode()
	if err != nil {
		return err
	}
	crashpoint.Here(machine.Agent + "/decided")
	c.sent = append(c.sent, sha256.Sum256(data))
	c.sent = c.sent[max(0, len(c.sent)-maxSent):]
	if err := c.writeData(ctx, data, dead); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	c.sent = nil
	crashpoint.Here(machine.Agent + "/written")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durable = max(c.durable, last(snapshot))
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

func (c *Checkpoint) writeData(ctx context.Context, data []byte, dead deadLetters) (err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	maps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	if c.object != nil {
		next := c.object.DeepCopy()
		if next.BinaryData == nil {
			next.BinaryData = map[string][]byte{}
		}
		next.BinaryData[checkpointKey] = data
		delete(next.BinaryData, formerCheckpointKey)
		if next.Data, err = dead.store(next.Data); err != nil {
			return err
		}
		written, err := maps.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			c.object = written
			return nil
		case apierrors.IsConflict(err):
			return c.ownWrite(ctx, err)
		case !apierrors.IsNotFound(err):
			return err
		}
		c.Log.Warn("deleted state written again", "configMap", c.Name)
		c.object = nil
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, BinaryData: map[string][]byte{checkpointKey: data}}
	if next.Data, err = dead.store(nil); err != nil {
		return err
	}
	written, err := maps.Create(ctx, next, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return c.ownWrite(ctx, err)
	}
	if err == nil {
		c.object = written
	}
	return err
}

// ownWrite looks whether a refused write was written by this process after all, in a
// request whose answer was lost; otherwise somebody else has written.
func (c *Checkpoint) ownWrite(ctx context.Context, refused error) error {
	object, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the state after %w: %w", refused, err)
	}
	if !slices.Contains(c.sent, sha256.Sum256(object.BinaryData[checkpointKey])) {
		return fmt.Errorf("%w: %w", ErrTaken, refused)
	}
	c.object = object
	return errors.New("the state was already written by a request without a response")
}

func newPace() *backoff.ExponentialBackOff {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = 200*time.Millisecond, 15*time.Second, 2
	pace.Reset()
	return pace
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}
