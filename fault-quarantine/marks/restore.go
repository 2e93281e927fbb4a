package marks

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// RestoreEvery bounds how often the marks of one Node are restored: two controllers that
// undo each other write this often at most.
const RestoreEvery = time.Minute

// ContestedAfter is how many times marks of one session are restored before the Node
// counts as contested.
const ContestedAfter = 5

// Restoration is what becomes of a mark that somebody lifted without releasing the Node.
type Restoration string

// Restorations.
const (
	// Intact: no mark is lifted, or a person released the Node by it.
	Intact Restoration = "Whole"
	// Restore: the mark is restored now.
	Restore Restoration = "Restore"
	// Later: marks were restored a moment ago; it stays lifted until then.
	Later Restoration = "Later"
)

// EvaluateRestoration decides, and returns how long Later is.
func EvaluateRestoration(m nodemark.Marks, now time.Time) (Restoration, time.Duration) {
	if m.Released != nodemark.NotReleased || m.Lifted == nodemark.NotReleased || m.Session == "" && m.AnyoneReleases {
		return Intact, 0
	}
	wait := m.Restored.At.Add(RestoreEvery).Sub(now)
	if m.Restored.Count == 0 || wait <= 0 || wait > RestoreEvery { // a clock was set back
		return Restore, 0
	}
	return Later, wait
}

// Why is why lifting a mark is no release.
type Why string

// Reasons.
const (
	NoPerson     Why = "NoPerson"
	RepairActive Why = "RepairActive"
	WriterHidden Why = "WriterHidden"
)

// NoRelease returns why a lifted mark of a Node is no release.
func NoRelease(m nodemark.Marks) Why {
	switch writer := nodemark.WriterOf(m.LiftedBy); {
	case writer == nodemark.ServiceAccount, writer == nodemark.System:
		return NoPerson
	case m.Repairing():
		return RepairActive
	}
	return WriterHidden
}

// ReportsRestore reports whether the nth restoration of a session's marks is reported by an
// Event: the first ones, then about one per hour.
func ReportsRestore(n int) bool { return n <= ContestedAfter || n%60 == 0 }

// recordRestoration notes what became of a lifted mark of a Node whose marks were m.
func recordRestoration(node *corev1.Node, m nodemark.Marks, restoration Restoration, now time.Time) {
	note := m.Restored
	switch is := nodemark.Read(node); {
	case restoration == Restore && is.Lifted == nodemark.NotReleased && is.Applied.Cordon == m.Applied.Cordon:
		by := m.LiftedBy
		if by == "" && note.Waiting {
			by = note.By
		}
		note = nodemark.Restored{Count: note.Count + 1, At: now, By: by, Mark: m.Lifted}
	case m.LiftedBy != "":
		note.By, note.Waiting = m.LiftedBy, true
	}
	nodemark.SetRestored(node, note)
	nodemark.Annotate(node, nodemark.LiftedByAnnotation, "")
}

// keep restores the marks of a Node out of session that stay for the repair object which
// claims it.
func keep(node *corev1.Node, m nodemark.Marks, now time.Time) {
	restoration, _ := EvaluateRestoration(m, now)
	if restoration == Intact {
		return
	}
	if restoration == Restore {
		node.Spec.Unschedulable = node.Spec.Unschedulable || m.Applied.Cordon
		for _, t := range m.Applied.Taints {
			if !t.PreExisting && !nodemark.HasTaint(node, t.Taint) {
				node.Spec.Taints = append(node.Spec.Taints, taint(t.Taint))
			}
		}
	}
	recordRestoration(node, m, restoration, now)
}
