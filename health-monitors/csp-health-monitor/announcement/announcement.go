// Package announcement is the provider-neutral model of a maintenance event.
package announcement

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
)

// State is how far a maintenance has come, as the provider reports it.
type State string

// The states of a maintenance. A provider's own word that is none of them is kept in
// Announcement.Metadata and read as the earliest state that it may mean.
const (
	Scheduled State = "Scheduled"
	Ongoing   State = "Ongoing"
	Completed State = "Completed"
	Cancelled State = "Cancelled"
)

// Ended reports whether the provider has nothing more to do.
func (s State) Ended() bool { return s == Completed || s == Cancelled }

// Announcement is what a provider reports about one maintenance of one machine. The
// provider may report it again with other words: ID stays the same over the whole life.
type Announcement struct {
	// ID is the provider's id of the maintenance and the machine together.
	ID string
	// Machine is the machine as Source.Machine reads it from a Node.
	Machine string
	// Code is the provider's name of the kind of maintenance.
	Code  string
	State State
	// Unplanned is maintenance that the provider did not schedule; Emergency asks for
	// the quarantine at once, whatever the window.
	Unplanned, Emergency bool
	// Begin and End are the window that is announced; Began and Ended are when it really
	// began and ended. Zero where the provider does not report it.
	Begin, End, Began, Ended time.Time
	// Updated is when the provider touched the announcement last; zero where it does not
	// report that.
	Updated time.Time
	// Action is what repairs the machine, by Code; never read from free text.
	Action protos.RecommendedAction
	// Text is the provider's text for people.
	Text string
	// Metadata is what else people want to know, by the provider's own names.
	Metadata map[string]string
}

// Machine is a machine of the cluster as its provider knows it.
type Machine struct {
	// Name is the machine's name in announcements, ProviderID that of its Node.
	Name, ProviderID string
}

// Question is what a source is asked.
type Question struct {
	// Checkpoint is the last Reading's that was stored; empty at the first.
	Checkpoint string
	// Open holds the IDs of the announcements that are stored and have not ended, to be
	// asked for by id where a provider's list forgets what has ended.
	Open []string
	// Machines are those of the cluster.
	Machines []Machine
	// Now is the time of the question.
	Now time.Time
}

// Reading is what a source answered.
type Reading struct {
	Announcements []Announcement
	// Complete is true if every announcement that is open was listed: one of Question.Open
	// that is missing has ended, how is not known.
	Complete bool
	// Checkpoint goes into the next Question once this Reading is stored.
	Checkpoint string
	// Calls is how many calls of the provider's API it took.
	Calls int
}

// Source is one cloud.
type Source interface {
	// Read asks the provider. An error is no reading: nothing of it may be stored, and
	// the same Checkpoint is asked again.
	Read(ctx context.Context, q Question) (Reading, error)
	// Machine reads the provider's name of a Node's machine from its spec.providerID;
	// false where it is not this cloud's.
	Machine(providerID string) (string, bool)
	// Names are the provider's own names of machines that several Nodes claim to be: names
	// that no kubelet writes, and one of which is the right Node's. A machine of which the
	// provider gives none is left out.
	Names(ctx context.Context, machines []string) (map[string][]string, error)
	// Check asks whether the credentials can do what Read needs, without effect.
	Check(ctx context.Context) error
}

// Compare orders announcements by their IDs.
func Compare(a, b Announcement) int { return strings.Compare(a.ID, b.ID) }

// Match is the first group of a pattern of a Node's spec.providerID; false where it does not
// match.
func Match(pattern *regexp.Regexp, providerID string) (string, bool) {
	if match := pattern.FindStringSubmatch(providerID); match != nil {
		return match[1], true
	}
	return "", false
}

// Value is what a field of a provider's answer points to; the zero value where it points
// nowhere.
func Value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Code is what a provider's name of a kind of maintenance means.
type Code struct {
	// Name is the provider's.
	Name string
	// Action is what repairs a machine to which it happened.
	Action protos.RecommendedAction
	// Unplanned is maintenance that nobody scheduled; Emergency quarantines at once.
	Unplanned, Emergency bool
	// Why is the reason for the action, in half a sentence.
	Why string
	// Source is the address of the page on which the provider publishes the name.
	Source string
}

// Unknown is the meaning of a code that no table has: a person reads it. Nothing is
// rebooted or replaced for a word that nobody here has read.
func Unknown(name string) Code {
	return Code{Name: name, Action: protos.RecommendedAction_CONTACT_SUPPORT, Why: "not in any table"}
}

// Find is the meaning of a code; Unknown where the table has it not.
func Find(table []Code, name string) Code {
	if i := slices.IndexFunc(table, func(c Code) bool { return c.Name == name }); i >= 0 {
		return table[i]
	}
	return Unknown(name)
}

// Markdown is a table for people, as it stands in csp-plugins/maintenance.md.
func Markdown(table []Code) string {
	var b strings.Builder
	b.WriteString("| code | action | | why | source |\n|---|---|---|---|---|\n")
	for _, c := range table {
		var marks []string
		if c.Unplanned {
			marks = append(marks, "unplanned")
		}
		if c.Emergency {
			marks = append(marks, "emergency")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | [page](%s) |\n", c.Name, c.Action, strings.Join(marks, ", "), c.Why, c.Source)
	}
	return b.String()
}
