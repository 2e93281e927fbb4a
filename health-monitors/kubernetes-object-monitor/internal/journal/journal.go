// Package journal keeps the monitor's book in the cluster: one ConfigMap with
// the open faults, the events that wait to be acknowledged, and their counter.
//
// It is there, and not on a disk or on the Nodes, because a new leader on any
// node has to find it, because a fault may outlive its Node, and because a fault
// and its event must become durable in one step: that step is one update of one
// object, and its resourceVersion locks out a leader that does not know yet that
// it leads no more. An event is handed to the publisher only after that step.
package journal

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
)

// Keys of the ConfigMap's binaryData.
const (
	bookKey    = "book.json.gz"
	damagedKey = "book.damaged"
)

// writeTime bounds one request.
const writeTime = 15 * time.Second

// sum tells one written state from another.
type sum = [sha256.Size]byte

// maxSent bounds the requests without an answer that are remembered. No request
// is under way for as long as that many take.
const maxSent = 64

// ErrTaken means that somebody else has written the book: this process must act
// no more.
var ErrTaken = errors.New("the state was written by another process")

// Journal is the book of one leader. Its exported fields are set before Load.
type Journal struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Clock           clock.Clock
	Log             *slog.Logger

	mu      sync.Mutex
	book    *machine.Book
	durable uint64 // events up to this seq are written
	changed chan struct{}
	dirty   chan struct{} // holds a token while something is unwritten
	trouble error

	object *corev1.ConfigMap // as it was last read or written; Run's alone, like sent
	sent   []sum             // of what was sent since the last answer, in requests that may have arrived
}

// Load reads the book; it tries until the API server answers or ctx ends.
func (j *Journal) Load(ctx context.Context) error {
	j.changed, j.dirty = make(chan struct{}), make(chan struct{}, 1)
	for pace := newPace(); ; {
		object, err := j.Client.CoreV1().ConfigMaps(j.Namespace).Get(ctx, j.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			j.object = object
			return j.open(object.BinaryData[bookKey])
		case apierrors.IsNotFound(err):
			j.object = nil
			return j.open(nil)
		}
		j.Log.Warn("the state could not be read", "configMap", j.Name, "error", err)
		if !j.pause(ctx, pace.NextBackOff()) {
			return fmt.Errorf("reading the state: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// open decodes the book; one that is damaged is set aside, and the monitor
// begins anew.
func (j *Journal) open(data []byte) error {
	book, err := machine.Decode(data)
	if err != nil {
		if j.object != nil {
			j.Log.Error("the state was unreadable and is set aside; open faults are not known any more", "error", err)
			j.object.BinaryData = map[string][]byte{damagedKey: data}
		}
		epoch, err := uuid.NewRandom()
		if err != nil {
			return fmt.Errorf("making an epoch: %w", err)
		}
		book = machine.New(epoch.String())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.book, j.durable = book, last(book)
	return nil
}

func last(b *machine.Book) uint64 {
	if w := b.Waiting(); len(w) > 0 {
		return w[len(w)-1].Seq
	}
	return 0
}

// Observe decides about one evaluation and books what follows.
func (j *Journal) Observe(s machine.Seen) (machine.Decision, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	d, err := j.book.Observe(s, newID)
	if d.Recover || d.Report {
		j.touch()
	}
	return d, err
}

// Open lists the keys of the open faults.
func (j *Journal) Open() []machine.Key {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.book.Open()
}

// Size counts the open faults and the events that wait.
func (j *Journal) Size() (open, waiting int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.book == nil {
		return 0, 0
	}
	return len(j.book.Open()), len(j.book.Waiting())
}

// Ready says whether the last write went well.
func (j *Journal) Ready() (bool, string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.trouble != nil {
		return false, j.trouble.Error()
	}
	return true, ""
}

// touch notes a change of the book; the lock is held.
func (j *Journal) touch() {
	select {
	case j.dirty <- struct{}{}:
	default:
	}
}

// Run writes the book whenever it has changed, all changes so far in one
// request, until ctx ends. What is unwritten then is found again by the next
// leader, since none of it was published.
func (j *Journal) Run(ctx context.Context) error {
	pace := newPace()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-j.dirty:
		}
		err := j.write(ctx)
		j.note(err)
		switch {
		case errors.Is(err, ErrTaken):
			return err
		case err == nil:
			pace.Reset()
			continue
		}
		j.mu.Lock()
		j.touch()
		j.mu.Unlock()
		if !j.pause(ctx, pace.NextBackOff()) {
			return nil
		}
	}
}

// note logs the first failure of a row and its end.
func (j *Journal) note(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && j.trouble == nil {
		j.Log.Warn("the state could not be written; events wait for it", "error", err)
	}
	if err == nil && j.trouble != nil {
		j.Log.Info("the state is written again")
	}
	j.trouble = err
}

func (j *Journal) write(ctx context.Context) error {
	j.mu.Lock()
	snapshot := j.book.Copy()
	j.mu.Unlock()
	data, err := snapshot.Encode()
	if err != nil {
		return err
	}
	crashpoint.Here(machine.Agent + "/decided")
	j.sent = append(j.sent, sha256.Sum256(data))
	j.sent = j.sent[max(0, len(j.sent)-maxSent):]
	if err := j.put(ctx, data); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	j.sent = nil
	crashpoint.Here(machine.Agent + "/written")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durable = max(j.durable, last(snapshot))
	close(j.changed)
	j.changed = make(chan struct{})
	return nil
}

func (j *Journal) put(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	maps := j.Client.CoreV1().ConfigMaps(j.Namespace)
	if j.object != nil {
		next := j.object.DeepCopy()
		if next.BinaryData == nil {
			next.BinaryData = map[string][]byte{}
		}
		next.BinaryData[bookKey] = data
		written, err := maps.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			j.object = written
			return nil
		case apierrors.IsConflict(err):
			return j.ours(ctx, err)
		case !apierrors.IsNotFound(err):
			return err
		}
		j.Log.Warn("the state was deleted and is written again", "configMap", j.Name)
		j.object = nil
	}
	written, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}, BinaryData: map[string][]byte{bookKey: data},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return j.ours(ctx, err)
	}
	if err == nil {
		j.object = written
	}
	return err
}

// ours looks whether a refused write was written by this process after all, in a
// request whose answer was lost; otherwise somebody else has written.
func (j *Journal) ours(ctx context.Context, refused error) error {
	object, err := j.Client.CoreV1().ConfigMaps(j.Namespace).Get(ctx, j.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the state after %w: %w", refused, err)
	}
	if !slices.Contains(j.sent, sha256.Sum256(object.BinaryData[bookKey])) {
		return fmt.Errorf("%w: %w", ErrTaken, refused)
	}
	j.object = object
	return errors.New("the state had been written by a request whose answer was lost")
}

func (j *Journal) pause(ctx context.Context, d time.Duration) bool {
	timer := j.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
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
