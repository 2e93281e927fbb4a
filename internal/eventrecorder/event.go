package eventrecorder

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// maxMessage bounds the message of an Event, in bytes.
const maxMessage = 1024

// Node is a Node as the object of an Event.
func Node(name string) corev1.ObjectReference { return nodeclient.NodeReference(name) }

// correlate makes an Event and compares it with those before; nil is none to be
// written.
func (r *Recorder) correlate(about corev1.ObjectReference, eventtype, reason, message string) *record.EventCorrelateResult {
	if r == nil {
		return nil
	}
	now := r.clock.Now()
	e := newEvent(about, r.component, metav1.NewTime(now))
	e.Name = util.GenerateEventName(about.Name, now.UnixNano()+r.made.Add(1))
	e.ReportingController, e.Type, e.Reason, e.Message, e.Count = r.component, eventtype, reason, shortened(message), 1
	result, err := r.correlator.EventCorrelate(e)
	switch {
	case err != nil: // no patch can be made of it
		r.failed(e, err)
		return nil
	case result.Skip:
		r.count("filtered")
		return nil
	}
	return result
}

// newEvent is an Event without its words. One about an object that has no namespace
// lives in default.
func newEvent(about corev1.ObjectReference, component string, at metav1.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		InvolvedObject: about, Source: corev1.EventSource{Component: component},
		FirstTimestamp: at, LastTimestamp: at,
	}
}

func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}
