package nodemark

import (
	"cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Former names of keys, read until v1.0 where the present key is missing. Who writes or
// removes a key removes its former name too.
const (
	// FormerRepeatOffenderLabel is the former name of LemonLabel.
	FormerRepeatOffenderLabel = "dgxc.nvidia.com/nvsentinel-lemon"
	// FormerRepeatOffenderAnnotation is the former name of LemonAnnotation.
	FormerRepeatOffenderAnnotation = "dgxc.nvidia.com/nvsentinel-lemon-repairs"
	// FormerReleaseOnAnyUncordonAnnotation is the former name of AnyoneReleasesAnnotation.
	FormerReleaseOnAnyUncordonAnnotation = "dgxc.nvidia.com/nvsentinel-anyone-releases"
)

// formerKeys has the former name of each key that has one.
var formerKeys = map[string]string{
	LemonLabel:               FormerRepeatOffenderLabel,
	LemonAnnotation:          FormerRepeatOffenderAnnotation,
	AnyoneReleasesAnnotation: FormerReleaseOnAnyUncordonAnnotation,
}

// value is that of a key of labels or annotations, or of its former name.
func value(m map[string]string, key string) string { return cmp.Or(m[key], m[formerKeys[key]]) }

// readLemon reads the mark of a lemon from the labels and annotations of a Node.
func readLemon(labels, annotations map[string]string) LemonMark {
	return LemonMark{
		Label: value(labels, LemonLabel) == LemonYes, Note: value(annotations, LemonAnnotation),
		Former: labels[FormerRepeatOffenderLabel] == LemonYes || annotations[FormerRepeatOffenderAnnotation] != "",
	}
}

// allRepairs are Repairs with what has a former name.
type allRepairs struct {
	Repairs
	Former []Call `json:"needsHuman"`
}

// present are the repairs with the present names only.
func (a allRepairs) present() Repairs {
	if a.NeedsHuman == nil {
		a.NeedsHuman = a.Former
	}
	for i, c := range a.NeedsHuman {
		a.NeedsHuman[i].Reason = record.PresentReason(c.Reason)
	}
	return a.Repairs
}
