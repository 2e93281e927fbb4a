package watch

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
)

// Tell makes a Policies.Refused that writes a Kubernetes Event about the state's
// ConfigMap, which is the one object of the monitor whose name it knows.
func Tell(events *eventrecorder.Recorder, namespace, name string) func(context.Context, error) {
	state := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}
	return func(_ context.Context, problem error) {
		events.Event(state, corev1.EventTypeWarning, "PoliciesRefused", problem.Error())
	}
}
