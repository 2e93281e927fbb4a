package record

import (
	"crypto/rand"
	"strings"
)

// FirstRun stands for the time in which a counter's runs had no names: it is the
// run of an event that names none.
const FirstRun = "-"

// Bounds of what an event reports about the runs of its counter.
const (
	// maxRuns counts the run that gave the seq and those before it.
	maxRuns = 9
	// runName is in characters, of five bits each.
	runName = 13
)

// NextRun names the run that begins when a durable counter is taken up, behind
// the runs before it, latest first: the value of MetadataSeqRuns. runs is what the
// run before it recorded, empty if that knew no runs; gave is whether that one gave
// any number.
//
// A counter is as old as its disk. One that was restored from an image counts
// again what was given meanwhile, and its numbers prove nothing about those. A run
// has a name that no other has, and its events name the runs that led to it, so
// that they are known to be later than those, and not taken for earlier than what
// a lost future of the disk gave. Of older runs than the list holds the order of
// the store decides.
func NextRun(runs string, gave bool) string {
	before := strings.Fields(runs)
	if len(before) == 0 {
		before = []string{FirstRun}
	}
	if !gave {
		before = before[1:]
	}
	before = before[:min(len(before), maxRuns-1)]
	return strings.Join(append([]string{rand.Text()[:runName]}, before...), " ")
}

// NamesRuns reports whether an event names the run of its publisher's counter.
func (e Event) NamesRuns() bool { return e.Metadata[MetadataSeqRuns] != "" }

// Runs are the run of its counter under which an event got its seq, and those
// before it that it names, latest first, parted by blanks.
func (e Event) Runs() (run, before string) {
	run, before, _ = strings.Cut(e.Metadata[MetadataSeqRuns], " ")
	if run == "" {
		run = FirstRun
	}
	return run, before
}

// RepeatOffender means that the machine needed too many repairs within the window of `[repeatOffender]`, or its Node has the repeat offender label, and
// `requireManualIntervention = true` prevents a further repair. The node stays in quarantine, and no recovery of a monitor ends the
// session. Action: find the cause or replace the machine, then run `nvsentinel release <node>`. Remove the label
// `dgxc.nvidia.com/nvsentinel-repeat-offender` if the repairs must not count.
const RepeatOffender = "RepeatOffender"

// RequiresRelease reports whether a record keeps its session for a person.
func RequiresRelease(s Status) bool {
	return s.Remediation != nil && s.Remediation.Outcome == OutcomeNeedsHuman && s.Remediation.Reason == RepeatOffender
}
