// Package pause implements the emergency stop of the suite: one ConfigMap that stops,
// on every replica of every service within seconds, all actions that cannot be undone:
// cordons, evictions, maintenance objects and signals. Recovery and release continue.
package pause

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const (
	// Name of the ConfigMap in the suite's namespace.
	Name = "nvsentinel-pause"
	// Key of its data. The emergency stop is on while the ConfigMap exists and this is not
	// Off: a misspelt value stops more, not less.
	Key = "pause"
	// Off is the one value that deactivates the emergency stop.
	Off = "off"
	// ReasonKey of its data states why, for people.
	ReasonKey = "reason"
	// retryDelay is when paused work is checked again, and soon is used while it is not
	// known yet whether the emergency stop is on.
	retryDelay = 10 * time.Second
	soon       = 200 * time.Millisecond
	// DefaultNamespace is used where none is configured.
	DefaultNamespace = "nvsentinel"
)

// Switch watches the ConfigMap. It is on until it was read once, and what was
// read last counts while the API server is away. A nil Switch is never on. It is
// safe for concurrent use.
type Switch struct {
	namespace string
	informers [2]cache.SharedIndexInformer // of Name, and of FormerName
	factories [2]informers.SharedInformerFactory
	log       *slog.Logger
	client    kubernetes.Interface
	clock     clock.PassiveClock
	changes   chan change

	mu        sync.Mutex
	listeners []func()
	on        bool // as last reported
}

// Start watches the emergency stop for as long as a daemon runs, and shows it in the
// daemon's metrics and readiness.
func Start(d *daemon.Daemon, client kubernetes.Interface, namespace string) *Switch {
	b := New(client, namespace, d.Log)
	d.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_paused", Help: "1 while the emergency stop pauses the cordons, evictions, maintenance objects, and reboot and replace requests of this process, otherwise 0.",
	}, func() float64 {
		if _, on := b.On(); on {
			return 1
		}
		return 0
	}))
	d.Go("pause", b.Run)
	d.Ready("pause", func() (bool, string) {
		why, _ := b.On()
		return !b.Unread(), why
	})
	return b
}

// New returns a Switch; Run reads its state.
func New(client kubernetes.Interface, namespace string, log *slog.Logger) *Switch {
	if namespace == "" {
		namespace = DefaultNamespace
	}
	b := &Switch{namespace: namespace, log: log, client: client, clock: clock.RealClock{}, changes: make(chan change, queued)}
	for i, name := range []string{Name, FormerName} {
		b.factories[i] = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}))
		b.informers[i] = b.factories[i].Core().V1().ConfigMaps().Informer()
	}
	return b
}

// queued are the changes whose Events wait to be written; what comes beside
// them has its line in the log only.
const queued = 16

// Run watches until ctx ends.
func (s *Switch) Run(ctx context.Context) error {
	for i, informer := range s.informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { s.switched(now, false); s.changed() },
			UpdateFunc: func(_, now any) { s.switched(now, false); s.changed() },
			DeleteFunc: func(last any) { s.switched(last, true); s.changed() },
		})
		if err != nil {
			return err
		}
		s.factories[i].Start(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), s.informers[0].HasSynced, s.informers[1].HasSynced) {
		s.changed() // what had to wait for the first reading goes on
	}
	for {
		select {
		case c := <-s.changes:
			s.emitEvent(ctx, s.client, c)
		case <-ctx.Done():
			for _, factory := range s.factories {
				kube.AwaitStop(factory.Shutdown)
			}
			return nil
		}
	}
}

// switched has an Event made when the emergency stop was switched on or off. A process
// that finds it on when it starts has one made as well, which makes a second Event only
// when the first has expired.
func (s *Switch) switched(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	decides := s.decides()
	if !gone && decides != nil && decides.Name != m.Name {
		return // a ConfigMap of the former name beside the present one has no effect
	}
	c := change{object: m, state: StateOf(decides), deleted: gone}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state.On == s.on {
		return
	}
	s.on = c.state.On
	select {
	case s.changes <- c:
	default:
	}
}

func (s *Switch) changed() {
	if s.Unread() {
		return
	}
	if why, on := s.On(); on {
		s.log.Warn("emergency stop activated, cordons, evictions, remediations and signals are paused", "why", why)
	} else {
		s.log.Info("emergency stop deactivated")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, notify := range s.listeners {
		notify()
	}
}

// Unread reports whether the state of the emergency stop is not known yet: it then counts as
// on, and nothing should be written about it.
func (s *Switch) Unread() bool {
	return s != nil && (!s.informers[0].HasSynced() || !s.informers[1].HasSynced())
}

// decides returns the ConfigMap that holds the state of the emergency stop; nil if there is none.
// The one of the former name counts where there is none of the present name.
func (s *Switch) decides() *corev1.ConfigMap {
	for i, name := range []string{Name, FormerName} {
		object, _, err := s.informers[i].GetStore().GetByKey(s.namespace + "/" + name)
		if m, ok := object.(*corev1.ConfigMap); ok && err == nil {
			return m
		}
	}
	return nil
}

// Wait returns when work that the emergency stop holds should be checked again.
func (s *Switch) Wait() time.Duration {
	if s.Unread() {
		return soon
	}
	return retryDelay
}

// On reports whether the emergency stop is on, and why. It is called right before each act.
func (s *Switch) On() (why string, on bool) {
	if s == nil {
		return "", false
	}
	if s.Unread() {
		return "the emergency stop is not read yet (ConfigMap " + s.namespace + "/" + Name + ")", true
	}
	m := s.decides()
	state := StateOf(m)
	if !state.On {
		return "", false
	}
	return "the emergency stop is on (ConfigMap " + s.namespace + "/" + m.Name + ")" + state.describe(), true
}

// OnChange calls notify whenever the emergency stop has changed; it must not block.
func (s *Switch) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, notify)
}

// Reasons of the Events about the ConfigMap.
const (
	// EventOn: the emergency stop is on, so nothing is cordoned, evicted or remediated. Action: remove the cause, then
	// run `nvsentinel resume`.
	EventOn = "NVSentinelPaused"
	// EventOff: the emergency stop is off and all services act again. Action: none.
	EventOff = "NVSentinelResumed"
)

// change is one switching of the emergency stop, for which one Event is made.
type change struct {
	object *corev1.ConfigMap
	state  State
	// deleted reports whether the ConfigMap was deleted.
	deleted bool
}

// retries are those of an Event; the log has the change by then.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Jitter: 0.1}

// emitEvent writes the Event of a change. Every process of every service writes the same
// one: its name follows from the ConfigMap's uid and revision, so that the API server
// keeps one of them.
func (s *Switch) emitEvent(ctx context.Context, client kubernetes.Interface, c change) {
	event := c.event(s.clock.Now())
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, retries, func(ctx context.Context) (bool, error) {
		_, last = client.CoreV1().Events(s.namespace).Create(ctx, event, metav1.CreateOptions{})
		return last == nil || apierrors.IsAlreadyExists(last) || apierrors.IsForbidden(last), nil
	})
	if ctx.Err() == nil && (err != nil || apierrors.IsForbidden(last)) {
		s.log.Warn("Event about the emergency stop not written, the ConfigMap stays effective", "error", last)
	}
}

func (c change) event(now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	kind, reason, message := corev1.EventTypeNormal, EventOff, "The emergency stop is off, pending work continues"
	if c.state.On {
		kind, reason, message = corev1.EventTypeWarning, EventOn, "The emergency stop is on: cordons, evictions, remediations and signals are paused, recoveries and releases continue"
	}
	version := c.object.ResourceVersion
	if c.deleted {
		version = "deleted"
	} else {
		message += c.state.describe()
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.object.Namespace, Name: c.object.Name + "." + string(c.object.UID) + "." + version},
		InvolvedObject: corev1.ObjectReference{
			Kind: "ConfigMap", APIVersion: "v1", Namespace: c.object.Namespace, Name: c.object.Name, UID: c.object.UID, ResourceVersion: c.object.ResourceVersion,
		},
		Source: corev1.EventSource{Component: "nvsentinel"}, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}

// describe is who switched it, and why, as far as that is known.
func (s State) describe() string {
	text := ""
	if s.By != "" {
		text = ", set by " + s.By
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}
