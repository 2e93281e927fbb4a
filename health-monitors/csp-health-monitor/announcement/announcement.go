// Package announcement is what cloud providers say of maintenance of their machines,
// in one form.
package announcement

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
)

// State is how far the provider says that a maintenance has come.
type State string

// The states of a maintenance. A provider's own word that is none of them is kept in
// Announcement.Metadata and read as the earliest state that it may mean.
const (
	Scheduled State = "Scheduled"
	Ongoing   State = "Ongoing"
	Completed State = "Completed"
	Cancelled State = "Cancelled"
)

// Announcement is what a provider says of one maintenance of one machine. The
// provider may say it again with other words: ID stays the same over the whole life.
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
	// Begin and End are the window that is announced; Began and Ended are what the
	// provider says has happened. Zero where it does not say.
	Begin, End, Began, Ended time.Time
	// Updated is when the provider touched the announcement last; zero where it does
	// not say.
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
	// Complete says that every announcement that is open was listed: one of
	// Question.Open that is missing has ended, how is not known.
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
