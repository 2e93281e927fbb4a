package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// eventNamespace is where Events about cluster-scoped objects live.
const eventNamespace = metav1.NamespaceDefault

// maxNodePart of a Node's name goes into an Event's name, which has the same
// limit of 253 characters and ends with a digest.
const maxNodePart = 230

// NodeEvent is a Kubernetes Event about a Node.
type NodeEvent struct {
	Component string
	// Type is Normal or Warning.
	Type            string
	Reason, Message string
}

// RecordNodeEvent writes an Event about a Node. The same event again raises
// its count: the name is a digest of its content, so that a repeat after a
// crash makes no second one.
func RecordNodeEvent(ctx context.Context, client kubernetes.Interface, node *corev1.Node, e NodeEvent, now time.Time) error {
	return recordNodeEvent(ctx, client, node, e, Seen{Times: 1, Last: now})
}

// Seen is how often what an Event tells was seen, and when last.
type Seen struct {
	Times int32
	Last  time.Time

	// told says that it may have been told already.
	told bool
}

// RecordNodeEventSeen is RecordNodeEvent for what may have been told already: an
// Event that shows the same or a later time, in whole seconds, stays as it is.
func RecordNodeEventSeen(ctx context.Context, client kubernetes.Interface, node *corev1.Node, e NodeEvent, seen Seen) error {
	seen.told = true
	return recordNodeEvent(ctx, client, node, e, seen)
}

func recordNodeEvent(ctx context.Context, client kubernetes.Interface, node *corev1.Node, e NodeEvent, seen Seen) error {
	at := metav1.NewTime(seen.Last.Truncate(time.Second))
	sum := sha256.Sum256([]byte(string(node.UID) + "|" + e.Component + "|" + e.Type + "|" + e.Reason + "|" + e.Message))
	name := node.Name[:min(len(node.Name), maxNodePart)] + "." + hex.EncodeToString(sum[:8])
	events := client.CoreV1().Events(eventNamespace)
	_, err := events.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: eventNamespace},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Node", APIVersion: "v1", Name: node.Name, UID: types.UID(node.Name), // kubectl describe looks Node events up by this uid
		},
		Source: corev1.EventSource{Component: e.Component}, Type: e.Type, Reason: e.Reason, Message: e.Message,
		FirstTimestamp: at, LastTimestamp: at, Count: seen.Times,
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return wrapEvent(err, node.Name)
	}
	have, err := events.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return wrapEvent(err, node.Name)
	}
	if seen.told && !have.LastTimestamp.Before(&at) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"count": have.Count + seen.Times, "lastTimestamp": at})
	if err != nil {
		return wrapEvent(err, node.Name)
	}
	_, err = events.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return wrapEvent(err, node.Name)
}

func wrapEvent(err error, node string) error {
	if err != nil {
		return fmt.Errorf("recording an event about node %s: %w", node, err)
	}
	return nil
}
