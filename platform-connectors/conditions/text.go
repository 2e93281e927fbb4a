package conditions

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

const (
	// MaxMessage bounds a condition's message, in bytes.
	MaxMessage = 1024
	// compactText is what is left of a fault's text when not all fit.
	compactText = 72
	cutMark     = "..."
)

// foreign are the conditions of the kubelet and the node controller, and the connector's
// own; a check of that name gets no condition.
var foreign = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
	nodemark.EventDelivery,
}

// Desired lists the conditions the Node must have, by type: one for each check
// of the set, True while a fault stands. The times are left to Changes.
func (s *Set) Desired() []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, name := range s.Names() {
		if slices.Contains(foreign, corev1.NodeConditionType(name)) {
			continue
		}
		c := corev1.NodeCondition{
			Type: corev1.NodeConditionType(name), Status: corev1.ConditionFalse,
			Reason: nodemark.HealthyReason(name), Message: record.HealthyMessage,
		}
		if faults := s.Checks[name].Faults; len(faults) > 0 {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, nodemark.UnhealthyReason(name), message(faults)
		}
		out = append(out, c)
	}
	return out
}

// message lists the faults, whole texts if they fit, else short ones, and as
// many of those as fit with a mark that some are missing.
func message(faults []Fault) string {
	for _, limit := range []int{maxText, compactText} {
		var b strings.Builder
		for _, f := range faults {
			b.WriteString(entryText(f, limit))
		}
		if b.Len() <= MaxMessage {
			return b.String()
		}
	}
	var b strings.Builder
	for _, f := range faults {
		text := entryText(f, compactText)
		if b.Len()+len(text)+len(cutMark) > MaxMessage {
			break
		}
		b.WriteString(text)
	}
	if b.Len() == 0 {
		return cut(entryText(faults[0], compactText), MaxMessage-len(cutMark)-1) + ";" + cutMark
	}
	return b.String() + cutMark
}

// entryText is one fault: "ErrorCode:<code> <type>:<value> <text> Recommended Action=<ACTION>;".
func entryText(f Fault, limit int) string {
	var parts []string
	if f.Entry.Code != "" {
		parts = append(parts, "ErrorCode:"+f.Entry.Code)
	}
	parts = append(append(parts, f.Entry.Names...), f.Entry.Sub...)
	return line(parts, f.Record.Event, limit)
}

// eventText is the same for all that an event names.
func eventText(e record.Event) string {
	var parts []string
	for _, code := range e.ErrorCode {
		parts = append(parts, "ErrorCode:"+code)
	}
	for _, x := range e.EntitiesImpacted {
		parts = append(parts, x.EntityType+":"+x.EntityValue)
	}
	text := line(parts, e, maxText)
	if len(text) > MaxMessage {
		return cut(text, MaxMessage-len(cutMark)) + cutMark
	}
	return text
}

func line(parts []string, e record.Event, limit int) string {
	if text := cut(e.Message, limit); text != "" {
		parts = append(parts, text)
	}
	parts = append(parts, nodemark.ActionText+string(e.Action()))
	return strings.ReplaceAll(strings.Join(parts, " "), ";", ".") + ";"
}

// cut shortens s to at most limit bytes, between runes.
func cut(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// Changes returns the conditions to write so that the Node has the desired
// ones: those that are missing or differ in status, reason or message. The
// transition time moves only with the status. Nothing else on the Node counts.
func Changes(have, desired []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, want := range desired {
		i := slices.IndexFunc(have, func(c corev1.NodeCondition) bool { return c.Type == want.Type })
		if i >= 0 && have[i].Status == want.Status && have[i].Reason == want.Reason && have[i].Message == want.Message {
			continue
		}
		want.LastHeartbeatTime = metav1.NewTime(now)
		want.LastTransitionTime = metav1.NewTime(now)
		if i >= 0 && have[i].Status == want.Status && !have[i].LastTransitionTime.IsZero() {
			want.LastTransitionTime = have[i].LastTransitionTime
		}
		out = append(out, want)
	}
	return out
}

// Faulty keeps the conditions that report a fault. It is what may be written
// while the set is not known to be complete: a fault that was seen stands, but
// what was not seen may be more than what was.
func Faulty(desired []corev1.NodeCondition) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(desired), func(c corev1.NodeCondition) bool {
		return c.Status != corev1.ConditionTrue
	})
}
