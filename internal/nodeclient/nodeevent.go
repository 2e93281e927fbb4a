package nodeclient

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
)

// maxNodePart of a Node's name goes into an Event's name, which has the same
// limit of 253 characters and ends with a digest.
const maxNodePart = 230

// FaultEvent is a fault that a Warning about its Node reports: who reports it, what it
// is, how often it was seen, and when last.
type FaultEvent struct {
	Component, Reason, Message string
	Times                      int32
	Last                       time.Time
}

// NodeReference is a Node as the object of an Event. kubectl describe looks the Events of a
// Node up by its name in the place of the uid.
func NodeReference(node string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
}

// CountFault writes the Event of a fault before it returns, once for all processes and
// lives: the Event's name is a digest of what it reports. One that is there gets the
// fault's times and its last time, unless it shows the same or a later one already,
// in whole seconds: then the fault is reported already. events are those of the namespace
// default, where Events live that are about an object without one.
func CountFault(ctx context.Context, events Events, node *corev1.Node, f FaultEvent) error {
	at := metav1.NewTime(f.Last.Truncate(time.Second))
	sum := sha256.Sum256([]byte(string(node.UID) + "|" + f.Component + "|" + corev1.EventTypeWarning + "|" + f.Reason + "|" + f.Message))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      node.Name[:min(len(node.Name), maxNodePart)] + "." + hex.EncodeToString(sum[:8]),
		},
		InvolvedObject: NodeReference(node.Name), Source: corev1.EventSource{Component: f.Component}, FirstTimestamp: at, LastTimestamp: at,
		Type: corev1.EventTypeWarning, Reason: f.Reason, Message: f.Message, Count: f.Times,
	}
	if err := countEvent(ctx, events, e); err != nil {
		return fmt.Errorf("recording an event about node %s: %w", node.Name, err)
	}
	return nil
}

func countEvent(ctx context.Context, events Events, e *corev1.Event) error {
	if _, err := events.Create(ctx, e, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := events.Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil || !have.LastTimestamp.Before(&e.LastTimestamp) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"count": have.Count + e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	_, err = events.Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
