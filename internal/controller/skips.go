package controller

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
)

// EventUndecodable is the reason of the Event about an object that is left out.
const EventUndecodable = "ObjectUndecodable"

// maxSkips bounds the objects that are remembered; all are left out.
const maxSkips = 1024

// Skips are the objects that a service leaves out, because the Go types of their kinds
// cannot decode them. Each version of one is logged and reported by an Event once.
type Skips struct {
	events *eventrecorder.Recorder
	log    *slog.Logger

	mu    sync.Mutex
	known map[skip]skipped
}

// skip names an object by the path of the list and its own name.
type skip struct{ of, kind, namespace, name string }

// skipped is what is known of it.
type skipped struct {
	version string // its resourceVersion that was reported
	current bool   // seen since the path was last read from the beginning
}

// NewSkips registers the number of objects that are left out. Events may be nil.
func NewSkips(events *eventrecorder.Recorder, log *slog.Logger, r prometheus.Registerer) *Skips {
	s := &Skips{events: events, log: log, known: map[skip]skipped{}}
	r.MustRegister(s)
	return s
}

var undecodable = prometheus.NewDesc("nvsentinel_undecodable_objects",
	"Objects that the API server has accepted and this service cannot decode, by kind: they are left out, the others are served.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (s *Skips) Describe(out chan<- *prometheus.Desc) { out <- undecodable }

// Collect implements prometheus.Collector.
func (s *Skips) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts, seen := map[string]int{}, map[skip]bool{}
	for k, x := range s.known {
		if k.of = ""; x.current && !seen[k] { // two lists may have the same object
			seen[k] = true
			counts[k.kind]++
		}
	}
	for kind, n := range counts {
		out <- prometheus.MustNewConstMetric(undecodable, prometheus.GaugeValue, float64(n), kind)
	}
}

// begin takes that all objects of a path are read from the beginning: what is not seen
// again is gone.
func (s *Skips) begin(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, x := range s.known {
		if k.of == of {
			x.current = false
			s.known[k] = x
		}
	}
}

// note takes an object that is left out, and reports it unless this version was reported.
func (s *Skips) note(of string, o metav1.PartialObjectMetadata, problem error) {
	if s.keep(skip{of, o.Kind, o.Namespace, o.Name}, o.ResourceVersion) {
		return
	}
	message := fmt.Sprintf("%s %s cannot be decoded and is left out, other objects are served; correct the field or delete the object: %v", o.Kind, o.Name, problem)
	s.log.Error("object cannot be decoded and is left out", "kind", o.Kind, "namespace", o.Namespace, "name", o.Name, "error", problem)
	s.events.Event(reference(o), corev1.EventTypeWarning, EventUndecodable, message)
}

// keep remembers a version, and says whether it was reported before.
func (s *Skips) keep(k skip, version string) (reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported = s.known[k].version == version
	if len(s.known) >= maxSkips {
		for k, x := range s.known {
			if !x.current {
				delete(s.known, k)
			}
		}
	}
	if _, known := s.known[k]; known || len(s.known) < maxSkips {
		s.known[k] = skipped{version, true}
	}
	return reported
}

// forget takes an object that is not left out, or is gone.
func (s *Skips) forget(of string, o metav1.PartialObjectMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, skip{of, o.Kind, o.Namespace, o.Name})
}
