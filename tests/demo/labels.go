package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// states are the state labels that a Node of a repair bears, one after the
// other. Dashboards and scripts watch for each of them.
var states = []nodemark.State{
	nodemark.Quarantined, nodemark.Draining, nodemark.DrainSucceeded, nodemark.Remediating, nodemark.RemediationSucceeded,
}

// labels follows the state label of a Node through a watch.
type labels struct {
	mu     sync.Mutex
	states []nodemark.State
}

// watchLabels begins behind the given state of the Node and ends with the context.
func watchLabels(ctx context.Context, f *fleet.Fleet, from *corev1.Node) (*labels, error) {
	w, err := f.Cluster.Client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", from.Name).String(), ResourceVersion: from.ResourceVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("watching node %s: %w", from.Name, err)
	}
	l := &labels{}
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if node, ok := e.Object.(*corev1.Node); ok {
				l.note(nodemark.State(node.Labels[nodemark.StateLabel]))
			}
		}
	}()
	return l, nil
}

func (l *labels) note(s nodemark.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != "" && (len(l.states) == 0 || l.states[len(l.states)-1] != s) {
		l.states = append(l.states, s)
	}
}

// complete reports whether all states came, and no other.
func (l *labels) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Equal(l.states, states)
}

func (l *labels) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := make([]string, len(l.states))
	for i, s := range l.states {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}
