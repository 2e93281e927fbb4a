// Package notice records as Kubernetes Events what people should see of a
// repair: on the Node that its machine is about to be told, on the repair
// object that its plugin does not take the signal.
//
// An Event is written before the call goes on, but it is never a condition for
// it: a cluster that takes no Events still gets its nodes repaired.
package notice

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Reason of an Event.
type Reason string

// Reasons.
const (
	// RebootSignal: the node's machine is about to be told to reboot.
	RebootSignal Reason = "RebootSignal"
	// TerminateSignal: the node's machine is about to be given back.
	TerminateSignal Reason = "TerminateSignal"
	// GPUReset: GPUs of the node are about to be reset.
	GPUReset Reason = "GPUReset"
	// PluginUnavailable: the plugin did not take a signal; it is asked again.
	PluginUnavailable Reason = "PluginUnavailable"
	// PluginRefused: the plugin refused a signal for good.
	PluginRefused Reason = "PluginRefused"
)

// writeLimit bounds the write of one Event.
const writeLimit = 5 * time.Second

// namespace of Events about objects that have none.
const namespace = "default"

// messageLimit is what the API server takes of a message, in bytes.
const messageLimit = 1024

// Object is what an Event is about.
type Object struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// OfNode is a Node as the object of an Event.
func OfNode(node *corev1.Node) Object {
	return Object{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// Board writes Events.
type Board struct {
	Client kubernetes.Interface
	Clock  clock.PassiveClock
	Log    *slog.Logger
}

// Post writes an Event. The same words about the same object are one Event
// within an hour, however often they are posted. A nil board writes nothing.
func (b *Board) Post(ctx context.Context, about Object, reason Reason, message string) {
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	_, err := b.Client.CoreV1().Events(namespace).Create(ctx, b.event(about, reason, message), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		b.Log.Warn("event was not recorded", "kind", about.Kind, "object", about.Name, "reason", reason, "error", err)
	}
}

// event names an Event by its words and hour, so that a repetition is the same.
func (b *Board) event(about Object, reason Reason, message string) *corev1.Event {
	if len(message) > messageLimit {
		message = strings.ToValidUTF8(message[:messageLimit-3], "") + "..."
	}
	kind := corev1.EventTypeWarning
	if reason == RebootSignal || reason == TerminateSignal || reason == GPUReset {
		kind = corev1.EventTypeNormal
	}
	now := metav1.NewTime(b.Clock.Now())
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", about.UID, reason, message, now.Unix()/3600))
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("nvsentinel-janitor.%x", sum[:12])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: about.APIVersion, Kind: about.Kind, Name: about.Name, UID: about.UID,
		},
		Reason: string(reason), Message: message, Type: kind, Source: corev1.EventSource{Component: "janitor"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: "janitor.dgxc.nvidia.com",
	}
}
