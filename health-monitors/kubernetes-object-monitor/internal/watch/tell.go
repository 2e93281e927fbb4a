package watch

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// maxNote bounds the message of an Event, as the API server does.
const maxNote = 1024

// Tell makes a Policies.Refused that writes a Kubernetes Event about the state's
// ConfigMap, which is the one object of the monitor whose name it knows.
func Tell(client kubernetes.Interface, namespace, name string, d *daemon.Daemon) func(context.Context, error) {
	return func(ctx context.Context, problem error) {
		note := problem.Error()
		now := metav1.NewTime(d.Clock.Now())
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: machine.Agent + "-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name},
			Type:           corev1.EventTypeWarning, Reason: "PoliciesRefused", Message: note[:min(len(note), maxNote)],
			Source: corev1.EventSource{Component: machine.Agent}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		}
		if _, err := client.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			d.Log.Warn("event about the refused policies was not written", "error", err)
		}
	}
}
