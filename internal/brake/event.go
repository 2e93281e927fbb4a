package brake

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Reasons of the Events about the ConfigMap.
const (
	EventOn  = "EmergencyBrakeOn"
	EventOff = "EmergencyBrakeOff"
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
		b.log.Warn("no Event about the emergency brake could be written; the brake itself holds as its ConfigMap says", "error", last)
	}
}

func (c change) event(now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	kind, reason, message := corev1.EventTypeNormal, EventOff, "the emergency brake is off: what waited goes on"
	if c.state.On {
		kind, reason, message = corev1.EventTypeWarning, EventOn, "nothing is cordoned, evicted, repaired or signalled; recoveries and releases go on"
	}
	version := c.object.ResourceVersion
	if c.gone {
		version = "deleted"
	} else {
		message += c.state.said()
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.object.Namespace, Name: Name + "." + string(c.object.UID) + "." + version},
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
		text = ", switched by " + s.By
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}
