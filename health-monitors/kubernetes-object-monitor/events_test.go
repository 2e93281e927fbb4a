package kubernetesobjectmonitor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
)

const nvmlNote = "Error: failed to create containerd task: nvidia-container-cli: initialization error: nvml error: driver not loaded"

// oldRecorder is what kubelets write with: core/v1, no eventTime, a count.
func (w *world) oldRecorder(node string) func(regarding runtime.Object) {
	b := record.NewBroadcaster(record.WithContext(w.t.Context()))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.cluster.Client().CoreV1().Events("")})
	w.t.Cleanup(b.Shutdown)
	r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: node})
	return func(regarding runtime.Object) { r.Event(regarding, corev1.EventTypeWarning, "Failed", nvmlNote) }
}

// newRecorder is the newer one: events.k8s.io/v1, eventTime, a series.
func (w *world) newRecorder(string) func(regarding runtime.Object) {
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.cluster.Client().EventsV1()})
	if err := b.StartRecordingToSinkWithContext(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(b.Shutdown)
	r := b.NewRecorder(scheme.Scheme, "kubelet")
	return func(regarding runtime.Object) {
		r.Eventf(regarding, nil, corev1.EventTypeWarning, "Failed", "Pulling", nvmlNote)
	}
}

// sourceOnly is a kubelet of old, which names itself in the source and nowhere else.
func (w *world) sourceOnly(node string) func(regarding runtime.Object) {
	return func(regarding runtime.Object) {
		pod := regarding.(*corev1.Pod)
		at := metav1.Now()
		_, err := w.cluster.Client().CoreV1().Events(pod.Namespace).Create(w.t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: pod.Name + ".old", Namespace: pod.Namespace},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Source:         corev1.EventSource{Component: "kubelet", Host: node}, Type: corev1.EventTypeWarning, Reason: "Failed", Message: nvmlNote,
			FirstTimestamp: at, LastTimestamp: at, Count: 1,
		}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// pod is one on a node.
func (w *world) pod(name, node string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.cluster.Client().CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// about waits for the one Event about a pod for which what holds. Until then, again repeats
// the Event.
func (w *world) about(pod *corev1.Pod, again func(runtime.Object), what func(corev1.Event) bool) {
	w.t.Helper()
	var seen []corev1.Event
	output := time.Now()
	poll(w.t, func() bool {
		list, err := w.cluster.Client().CoreV1().Events(w.namespace).List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
		if err != nil {
			w.t.Fatal(err)
		}
		seen = list.Items
		if slices.ContainsFunc(seen, what) {
			return true
		}
		if again != nil && time.Since(output) > time.Second && len(seen) > 0 { // a recorder is rate-limited
			again(pod)
			output = time.Now()
		}
		return false
	}, func() string { return "no such Event" })
	if len(seen) != 1 {
		w.t.Fatalf("%d Events about %s", len(seen), pod.Name)
	}
}

// TestTheADRsPolicyOnEventsOfRealRecorders: the policy is the ADR's, and the Events
// are written by the recorders of client-go, once and repeated: each is a fault of
// the pod's node, and recovers ten minutes after it was seen last.
func TestTheADRsPolicyOnEventsOfRealRecorders(t *testing.T) {
	w := newWorld(t, example(t))
	w.serviceAccount()
	t.Cleanup(func() { // other tests share the cluster, and have this policy too
		events := w.cluster.Client().CoreV1().Events(w.namespace)
		if err := events.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	once := func(corev1.Event) bool { return true }
	var want []string
	for name, v := range map[string]struct {
		recorder func(node string) func(runtime.Object)
		repeated bool
		is       func(corev1.Event) bool
	}{
		"core": {w.oldRecorder, false, func(e corev1.Event) bool { return e.EventTime.IsZero() && e.ReportingInstance == "kom-event-core" }},
		"core-twice": {w.oldRecorder, true, func(e corev1.Event) bool {
			return e.EventTime.IsZero() && e.Count > 1 && e.LastTimestamp.After(e.FirstTimestamp.Time)
		}},
		"new":         {w.newRecorder, false, func(e corev1.Event) bool { return !e.EventTime.IsZero() && e.LastTimestamp.IsZero() }},
		"new-series":  {w.newRecorder, true, func(e corev1.Event) bool { return e.Series != nil && e.Series.Count > 1 && e.LastTimestamp.IsZero() }},
		"source-only": {w.sourceOnly, false, func(e corev1.Event) bool { return e.ReportingController == "" && e.EventTime.IsZero() }},
	} {
		node := "kom-event-" + name
		pod, say := w.pod(name, node), v.recorder(node)
		say(pod)
		w.about(pod, nil, once)
		if v.repeated {
			w.about(pod, say, v.is)
		} else {
			w.about(pod, nil, v.is)
		}
		want = append(want, "fault NVMLError "+node)
	}
	fake := testclock.NewFakeClock(time.Now())
	w.clock = fake
	w.run()
	w.until(fake, 50*time.Millisecond, len(want))
	reported := func() (out []string) {
		for _, s := range stories(w.connector.Distinct(t)) {
			out = append(out, strings.Join(strings.Fields(s)[:3], " "))
		}
		slices.Sort(out)
		return out
	}
	slices.Sort(want)
	if got := reported(); !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
	// The pods go first: the recoveries still find their nodes.
	pods := w.cluster.Client().CoreV1().Pods(w.namespace)
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until(fake, time.Minute, 2*len(want))
	for _, s := range slices.Clone(want) {
		want = append(want, strings.Replace(s, "fault", "recovery", 1))
	}
	if got := reported(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
