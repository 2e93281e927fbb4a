package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
)

// Skipping is a copy of the config for clients of the added kinds. An object that the
// API server has accepted, and that the Go type of its kind cannot decode, makes
// client-go drop the whole list, or end the watch, that contains it: no object of the
// kind would be served. Clients of the copy get lists and watches without such objects.
// A watch shows an object that becomes undecodable as deleted. Reading the object
// itself is an error, as before: that an object is not in a list does not mean that it
// does not exist. skips records each such object.
func Skipping(config *rest.Config, skips *Skips, add ...func(*runtime.Scheme) error) (*rest.Config, error) {
	kinds := runtime.NewScheme()
	for _, add := range add {
		if err := add(kinds); err != nil {
			return nil, fmt.Errorf("registering the kinds: %w", err)
		}
	}
	filter := &filter{
		kinds: kinds, skips: skips,
		decoder: k8sjson.NewSerializerWithOptions(k8sjson.DefaultMetaFactory, kinds, kinds, k8sjson.SerializerOptions{}),
	}
	for _, group := range kinds.PrioritizedVersionsAllGroups() {
		filter.paths = append(filter.paths, "/apis/"+group.Group+"/"+group.Version+"/")
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &skipping{next, filter} })
	return config, nil
}

// skipping is the transport of such clients.
type skipping struct {
	next http.RoundTripper
	*filter
}

// RoundTrip implements http.RoundTripper.
func (s *skipping) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || answer.StatusCode != http.StatusOK || !s.concerns(r, answer) {
		return answer, err //nolint:wrapcheck // a transport's errors are the caller's
	}
	of := r.URL.Path
	query := r.URL.Query()
	if watches, _ := strconv.ParseBool(query.Get("watch")); watches {
		if whole, _ := strconv.ParseBool(query.Get("sendInitialEvents")); whole {
			s.skips.begin(of)
		}
		answer.Body = &watched{body: answer.Body, frames: json.NewDecoder(answer.Body), filter: s.filter, of: of}
		return answer, nil
	}
	body, err := io.ReadAll(answer.Body)
	if err := answer.Body.Close(); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	body = s.list(body, of, query.Get("limit") == "" && query.Get("fieldSelector") == "" && query.Get("labelSelector") == "")
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Del("Content-Length")
	return answer, nil
}

// filter knows which objects cannot be decoded.
type filter struct {
	paths   []string
	kinds   *runtime.Scheme
	decoder runtime.Decoder
	skips   *Skips
}

// concerns reports whether a response may hold objects of the kinds, as JSON.
func (f *filter) concerns(r *http.Request, answer *http.Response) bool {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || kind != runtime.ContentTypeJSON {
		return false
	}
	for _, path := range f.paths {
		if strings.Contains(r.URL.Path, path) {
			return true
		}
	}
	return false
}

// list is a list without the objects that cannot be decoded; whole reports whether it has
// all objects there are. Anything else than a list stays as it is.
func (f *filter) list(body []byte, of string, whole bool) []byte {
	var fields map[string]json.RawMessage
	var head struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &fields) != nil || fields["items"] == nil || json.Unmarshal(body, &head) != nil {
		return body
	}
	if whole {
		f.skips.begin(of)
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, strings.TrimSuffix(head.Kind, "List"))
	kept := make([]json.RawMessage, 0, len(head.Items))
	for _, item := range head.Items {
		if _, ok := f.decodes(item, kind, of); ok {
			kept = append(kept, item)
		}
	}
	if len(kept) == len(head.Items) {
		return body
	}
	items, err := json.Marshal(kept)
	if err == nil {
		fields["items"] = items
		items, err = json.Marshal(fields)
	}
	if err != nil {
		return body
	}
	return items
}

// decodes reports whether an object can be decoded; identity is what it is called.
func (f *filter) decodes(object []byte, kind schema.GroupVersionKind, of string) (identity metav1.PartialObjectMetadata, ok bool) {
	_, _, problem := f.decoder.Decode(object, &kind, nil)
	if json.Unmarshal(object, &identity) != nil || runtime.IsNotRegisteredError(problem) {
		return identity, true // the client reports what it is
	}
	if identity.Kind == "" {
		identity.SetGroupVersionKind(kind)
	}
	if problem == nil {
		f.skips.forget(of, identity)
		return identity, true
	}
	f.skips.note(of, identity, problem)
	return identity, false
}

// watched is the body of a watch without the objects that cannot be decoded.
type watched struct {
	body   io.ReadCloser
	frames *json.Decoder
	*filter
	of   string
	left []byte // of the current frame
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	if len(w.left) == 0 {
		var raw json.RawMessage
		if err := w.frames.Decode(&raw); err != nil {
			return 0, err //nolint:wrapcheck // io.EOF among others
		}
		w.left = append(w.frame(raw), '\n')
	}
	n := copy(p, w.left)
	w.left = w.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (w *watched) Close() error { return w.body.Close() } //nolint:wrapcheck // it is the body's

// frame is what the client gets for an event of the watch. Of an object that cannot be
// decoded it gets that it is gone, or no more than the resourceVersion if it was never
// there.
func (w *watched) frame(raw json.RawMessage) []byte {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if json.Unmarshal(raw, &event) != nil || event.Type == watch.Bookmark || event.Type == watch.Error {
		return raw
	}
	identity, ok := w.decodes(event.Object, schema.GroupVersionKind{}, w.of)
	if event.Type == watch.Deleted {
		w.skips.forget(w.of, identity)
	}
	if ok {
		return raw
	}
	seen := metav1.PartialObjectMetadata{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
	if event.Type == watch.Added {
		event.Type, seen.ObjectMeta = watch.Bookmark, metav1.ObjectMeta{ResourceVersion: identity.ResourceVersion}
	} else {
		event.Type = watch.Deleted
	}
	object, err := json.Marshal(seen)
	if err == nil {
		event.Object = object
		object, err = json.Marshal(event)
	}
	if err != nil {
		return raw
	}
	return object
}

// reference names the object for an Event.
func reference(o metav1.PartialObjectMetadata) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

// EventUndecodable means that an object does not fit its type, so its controller skips it. Action: correct the field that the
// Event names.
const EventUndecodable = "ObjectUndecodable"

// maxSkips bounds the objects that are remembered; all are left out.
const maxSkips = 1024

// Skips are the objects that a service leaves out, because the Go types of their kinds
// cannot decode them. Each version of one is logged and reported by an Event once.
type Skips struct {
	events *eventrecorder.Recorder
	log    *slog.Logger

	mu       sync.Mutex
	reported map[skip]skipped
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
	s := &Skips{events: events, log: log, reported: map[skip]skipped{}}
	r.MustRegister(s)
	return s
}

var undecodable = prometheus.NewDesc("nvsentinel_undecodable_objects",
	"Objects that the API server accepted and this service cannot decode, by kind. They are skipped, and the others are processed.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (s *Skips) Describe(out chan<- *prometheus.Desc) { out <- undecodable }

// Collect implements prometheus.Collector.
func (s *Skips) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts, seen := map[string]int{}, map[skip]bool{}
	for k, x := range s.reported {
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
	for k, x := range s.reported {
		if k.of == of {
			x.current = false
			s.reported[k] = x
		}
	}
}

// note takes an object that is left out, and reports it unless this version was reported.
func (s *Skips) note(of string, o metav1.PartialObjectMetadata, problem error) {
	if s.keep(skip{of, o.Kind, o.Namespace, o.Name}, o.ResourceVersion) {
		return
	}
	message := fmt.Sprintf("%s %s cannot be decoded and is skipped, other objects are processed. Correct the field or delete the object: %v", o.Kind, o.Name, problem)
	s.log.Error("undecodable object skipped", "kind", o.Kind, "namespace", o.Namespace, "name", o.Name, "error", problem)
	s.events.Event(reference(o), corev1.EventTypeWarning, EventUndecodable, message)
}

// keep remembers a version, and reports whether it was reported before.
func (s *Skips) keep(k skip, version string) (reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported = s.reported[k].version == version
	if len(s.reported) >= maxSkips {
		for k, x := range s.reported {
			if !x.current {
				delete(s.reported, k)
			}
		}
	}
	if _, known := s.reported[k]; known || len(s.reported) < maxSkips {
		s.reported[k] = skipped{version, true}
	}
	return reported
}

// forget takes an object that is not left out, or is gone.
func (s *Skips) forget(of string, o metav1.PartialObjectMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reported, skip{of, o.Kind, o.Namespace, o.Name})
}
