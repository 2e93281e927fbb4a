package reconciler_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// leaving reports whether a pod is gone or on its way out.
func (s *stage) leaving(ns, name string) (gone, going bool) {
	s.t.Helper()
	p, err := s.cluster.Client().CoreV1().Pods(ns).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, true
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return false, p.DeletionTimestamp != nil
}

func (s *stage) eviction(id string) record.EvictionStatus {
	s.t.Helper()
	r, err := s.records.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Status.UserPodsEvictionStatus
}

func (s *stage) wantEviction(id string, want record.Eviction) {
	s.t.Helper()
	s.eventually(func() error {
		if got := s.eviction(id); got.Status != want {
			return fmt.Errorf("record %s is %q (%s), want %q", id, got.Status, got.Message, want)
		}
		return nil
	})
}

func (s *stage) wantLabel(want nodemark.State) {
	s.t.Helper()
	s.eventually(func() error {
		n, err := kube.ReadNode(s.t.Context(), s.cluster.Client(), s.node)
		if err != nil {
			return err
		}
		if got := n.Labels[nodemark.StateLabel]; got != string(want) {
			return fmt.Errorf("state %q, want %q", got, want)
		}
		return nil
	})
}

// events are the types and reasons of this service's Events about the node.
func (s *stage) events() string {
	s.t.Helper()
	events, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.node})
	if err != nil {
		s.t.Fatal(err)
	}
	var reasons []string
	for _, e := range events.Items {
		if e.Source.Component == "nvsentinel-node-drainer" {
			reasons = append(reasons, e.Type+" "+e.Reason)
		}
	}
	return strings.Join(reasons, " ")
}

// eventually polls until check is content, at most two minutes.
func (s *stage) eventually(check func() error) {
	s.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
		select {
		case <-s.t.Context().Done():
			s.t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// snapshot is everything a drainer could write.
func (s *stage) snapshot(id string) string {
	s.t.Helper()
	n, err := kube.ReadNode(s.t.Context(), s.cluster.Client(), s.node)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := s.records.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	events, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.node})
	if err != nil {
		s.t.Fatal(err)
	}
	drains := 0
	for _, e := range events.Items {
		if e.Source.Component == "nvsentinel-node-drainer" {
			drains++
		}
	}
	b, err := json.Marshal([]any{n.Labels[nodemark.StateLabel], n.Annotations[nodemark.SessionAnnotation], n.Spec.Unschedulable, r, drains})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
