package nodemark

import (
	"cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Former names of keys, read until v1.0 where the present key is missing. Who writes or
// removes a key removes its former name too.
const (
	// FormerRepeatOffenderLabel is the former name of RepeatOffenderLabel.
	FormerRepeatOffenderLabel = "dgxc.nvidia.com/nvsentinel-lemon"
	// FormerRepeatOffenderAnnotation is the former name of RepeatOffenderAnnotation.
	FormerRepeatOffenderAnnotation = "dgxc.nvidia.com/nvsentinel-lemon-repairs"
	// FormerReleaseOnAnyUncordonAnnotation is the former name of AnyoneReleasesAnnotation.
	FormerReleaseOnAnyUncordonAnnotation = "dgxc.nvidia.com/nvsentinel-anyone-releases"
)

// formerKeys has the former name of each key that has one.
var formerKeys = map[string]string{
	RepeatOffenderLabel:      FormerRepeatOffenderLabel,
	RepeatOffenderAnnotation: FormerRepeatOffenderAnnotation,
	AnyoneReleasesAnnotation: FormerReleaseOnAnyUncordonAnnotation,
}

// value is that of a key of labels or annotations, or of its former name.
func value(m map[string]string, key string) string { return cmp.Or(m[key], m[formerKeys[key]]) }

// readRepeatOffender reads the mark of a repeat offender from the labels and annotations of a Node.
func readRepeatOffender(labels, annotations map[string]string) RepeatOffenderMark {
	return RepeatOffenderMark{
		Label: value(labels, RepeatOffenderLabel) == RepeatOffenderTrue, Note: value(annotations, RepeatOffenderAnnotation),
		Former: labels[FormerRepeatOffenderLabel] == RepeatOffenderTrue || annotations[FormerRepeatOffenderAnnotation] != "",
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
