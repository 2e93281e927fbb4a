// Package brake is the emergency brake of the suite: one ConfigMap that stops,
// on every replica of every service within seconds, what cannot be taken back:
// cordons, evictions, repair objects and signals. Recovery and release go on.
package brake

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
	// Key of its data. The brake is on while the ConfigMap exists and this is not
	// Off: a misspelt value stops more, not less.
	Key = "pause"
	// Off is the one value that lets the brake go.
	Off = "off"
	// ReasonKey of its data says why, for people.
	ReasonKey = "reason"
	// pause is when braked work is looked at again, and soon while it is not known
	// yet whether there is a brake.
	pause = 10 * time.Second
	soon  = 200 * time.Millisecond
	// DefaultNamespace is used where none is configured.
	DefaultNamespace = "nvsentinel"
)

// Brake watches the ConfigMap. It is on until it was read once, and what was
// read last counts while the API server is away. A nil Brake is never on. It is
// safe for concurrent use.
type Brake struct {
	namespace string
	informers [2]cache.SharedIndexInformer // of Name, and of FormerName
	factories [2]informers.SharedInformerFactory
	log       *slog.Logger
	client    kubernetes.Interface
	clock     clock.PassiveClock
	changes   chan change

	mu        sync.Mutex
	listeners []func()
	on        bool // as last told
}

// Start watches the brake for as long as a daemon runs, and shows it in the
// daemon's metrics and readiness.
func Start(d *daemon.Daemon, client kubernetes.Interface, namespace string) *Brake {
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

// New makes a brake; Run reads it.
func New(client kubernetes.Interface, namespace string, log *slog.Logger) *Brake {
	if namespace == "" {
		namespace = DefaultNamespace
	}
	b := &Brake{namespace: namespace, log: log, client: client, clock: clock.RealClock{}, changes: make(chan change, queued)}
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
func (b *Brake) Run(ctx context.Context) error {
	for i, informer := range b.informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { b.switched(now, false); b.changed() },
			UpdateFunc: func(_, now any) { b.switched(now, false); b.changed() },
			DeleteFunc: func(last any) { b.switched(last, true); b.changed() },
		})
		if err != nil {
			return err
		}
		b.factories[i].Start(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), b.informers[0].HasSynced, b.informers[1].HasSynced) {
		b.changed() // what had to wait for the first reading goes on
	}
	for {
		select {
		case c := <-b.changes:
			b.tell(ctx, b.client, c)
		case <-ctx.Done():
			for _, factory := range b.factories {
				kube.AwaitStop(factory.Shutdown)
			}
			return nil
		}
	}
}

// switched has an Event made when the brake went on or off. A process that finds
// it on when it starts tells so as well, which makes a second Event only when the
// first has expired.
func (b *Brake) switched(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	decides := b.decides()
	if !gone && decides != nil && decides.Name != m.Name {
		return // a ConfigMap of the former name beside the present one says nothing
	}
	c := change{object: m, state: StateOf(decides), gone: gone}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state.On == b.on {
		return
	}
	b.on = c.state.On
	select {
	case b.changes <- c:
	default:
	}
}

func (b *Brake) changed() {
	if b.Unread() {
		return
	}
	if why, on := b.On(); on {
		b.log.Warn("emergency stop activated, cordons, evictions, remediations and signals are paused", "why", why)
	} else {
		b.log.Info("emergency stop deactivated")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, notify := range b.listeners {
		notify()
	}
}

// Unread says that nobody knows yet whether the brake is on: it counts as on, and
// nothing should be written about it.
func (b *Brake) Unread() bool {
	return b != nil && (!b.informers[0].HasSynced() || !b.informers[1].HasSynced())
}

// decides is the ConfigMap that says how the brake stands; nil is none. The one of the
// former name counts where there is none of the present name.
func (b *Brake) decides() *corev1.ConfigMap {
	for i, name := range []string{Name, FormerName} {
		object, _, err := b.informers[i].GetStore().GetByKey(b.namespace + "/" + name)
		if m, ok := object.(*corev1.ConfigMap); ok && err == nil {
			return m
		}
	}
	return nil
}

// Wait is when work that the brake stops should be looked at again.
func (b *Brake) Wait() time.Duration {
	if b.Unread() {
		return soon
	}
	return pause
}

// On says whether the brake is on, and why. It is asked right before each act.
func (b *Brake) On() (why string, on bool) {
	if b == nil {
		return "", false
	}
	if b.Unread() {
		return "the emergency stop is not read yet (ConfigMap " + b.namespace + "/" + Name + ")", true
	}
	m := b.decides()
	state := StateOf(m)
	if !state.On {
		return "", false
	}
	return "the emergency stop is on (ConfigMap " + b.namespace + "/" + m.Name + ")" + state.said(), true
}

// OnChange calls notify whenever the brake has changed; it must not block.
func (b *Brake) OnChange(notify func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, notify)
}

// Reasons of the Events about the ConfigMap.
const (
	// EventOn: the emergency stop is on, so nothing is cordoned, evicted or remediated. Action: remove the cause, then
	// run `nvsentinel resume`.
	EventOn = "NVSentinelPaused"
	// EventOff: the emergency stop is off and all services act again. Action: none.
	EventOff = "NVSentinelResumed"
)

// change is one switching of the brake, of which one Event is made.
type change struct {
	object *corev1.ConfigMap
	state  State
	// gone says that the ConfigMap was deleted.
	gone bool
}

// retries of an Event; the log has said it by then.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Jitter: 0.1}

// tell writes the Event of a change. Every process of every service tells the
// same one: its name follows from the ConfigMap's uid and revision, so that the
// API server keeps one of them.
func (b *Brake) tell(ctx context.Context, client kubernetes.Interface, c change) {
	event := c.event(b.clock.Now())
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, retries, func(ctx context.Context) (bool, error) {
		_, last = client.CoreV1().Events(b.namespace).Create(ctx, event, metav1.CreateOptions{})
		return last == nil || apierrors.IsAlreadyExists(last) || apierrors.IsForbidden(last), nil
	})
	if ctx.Err() == nil && (err != nil || apierrors.IsForbidden(last)) {
		b.log.Warn("Event about the emergency stop not written, the ConfigMap stays effective", "error", last)
	}
}

func (c change) event(now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	kind, reason, message := corev1.EventTypeNormal, EventOff, "The emergency stop is off, pending work continues"
	if c.state.On {
		kind, reason, message = corev1.EventTypeWarning, EventOn, "The emergency stop is on: cordons, evictions, remediations and signals are paused, recoveries and releases continue"
	}
	version := c.object.ResourceVersion
	if c.gone {
		version = "deleted"
	} else {
		message += c.state.said()
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

// said is who switched it, and why, as far as that is known.
func (s State) said() string {
	text := ""
	if s.By != "" {
		text = ", set by " + s.By
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}
