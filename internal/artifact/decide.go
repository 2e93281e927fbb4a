// Package artifact decides what may be read from a rendered object and what may be written
// to it, so that every output was made by exactly one set of inputs, although the object
// does not show by which (seed: Artifact Tracing with Health Rules).
//
// An object is read only while it is healthy and written only while it is healthy or
// unhealthy: at most one definition is in flight, and of those that come meanwhile the
// newest is written. Before anything is read the live object is compared with what was
// written last; what others changed is taken back first.
//
// It is pure. The caller reads the object, keeps the Slot where it survives him, and
// writes: first the slot with what is intended, then the object, then the slot with
// what came of it. A death in between is seen at the next look, because the object
// bears the digest of its definition.
package artifact

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// Lifecycle is what becomes of an object whose rendered definition changes.
type Lifecycle string

// Lifecycles.
const (
	// Mutable objects follow their rendered definition, and are made again if somebody deletes them.
	Mutable Lifecycle = "mutable"
	// Immutable objects act once: they are made, and never written to or made again.
	Immutable Lifecycle = "immutable"
)

// Slot is what is remembered of an object between two looks.
type Slot struct {
	// ID identifies whom the object is for; the object has it in SlotAnnotation.
	ID string `json:"id"`
	// UID of the object that Applied made; empty before.
	UID string `json:"uid,omitempty"`
	// Intended is the definition that is about to be written.
	Intended *Definition `json:"intended,omitempty"`
	// Applied is the one that was written last.
	Applied *Definition `json:"applied,omitempty"`
	// Since when the object has had no verdict; zero while it has one.
	Since time.Time `json:"since,omitzero"`
}

// Facts are what a decision depends on.
type Facts struct {
	Slot      Slot
	Lifecycle Lifecycle
	// Rule is nil for a template without a health rule: what exists is healthy.
	Rule *healthrule.Rule
	// Wanted is the newest rendered definition; the zero Definition asks for nothing new.
	Wanted Definition
	// Live is nil if the object is certainly absent. ReadErr is why nothing is known.
	Live    *unstructured.Unstructured
	ReadErr error
	// UnknownTimeout is how long the object may be without a verdict; 0 is for ever.
	UnknownTimeout time.Duration
	Now            time.Time
}

// Verb is what has to be done.
type Verb string

// The verbs. Intend and Settle write the slot alone, Create, Apply and Revert the
// object alone.
const (
	Nothing Verb = "nothing"
	// Intend remembers Wanted as Intended.
	Intend Verb = "intend"
	// Create makes the object by Intended.
	Create Verb = "create"
	// Apply writes Intended over the live object.
	Apply Verb = "apply"
	// Settle remembers what is there as Applied, with what the API server made of it.
	Settle Verb = "settle"
	// Revert writes over the live object what the API server made of Applied.
	Revert Verb = "revert"
	// Restore writes Intended over what somebody else made of it before anybody saw
	// what the API server did.
	Restore Verb = "restore"
)

// Reasons of a decision that no health rule gives.
const (
	// ReasonDrifted: another program changed the definition of the object. A mutable object is restored. A step whose
	// immutable object has outputs fails, and the run ends as OutcomeUnknown. Action: find the program with
	// `kubectl get <kind> <name> -o yaml --show-managed-fields` and stop it.
	ReasonDrifted = "Drifted"
	// ReasonLost: the object was deleted, failed during its deletion, or was replaced by another one, so its effect
	// is unknown. A mutable object is created again. Action: find out whether the node was repaired
	// (`nvsentinel trace <node>`), and do not delete objects of runs.
	ReasonLost = "Lost"
	// ReasonTaken: an object of another owner has the name of the object of this step. It is not changed, and the run
	// ends as OutcomeUnknown. Action: delete or rename that object.
	ReasonTaken = "NameTaken"
	// ReasonInFlight: the object was written a moment ago and is read again before its state counts. Action: none.
	ReasonInFlight = "InFlight"
)

// Decision is what follows from the facts.
type Decision struct {
	Do Verb
	// Health is the verdict; Unknown whenever the object is not as it was defined.
	Health healthrule.Result
	// Read means that the outputs may be read, and are those of Applied. Without it what
	// was read before stands, and is stale.
	Read bool
	// Drifted means that an immutable object was changed: its verdict counts, and its
	// outputs are nobody's.
	Drifted bool
	// Final: nothing of this object will ever be known.
	Final bool
	// Deferred: there is something to write, which may not be now.
	Deferred bool
	// Since is that of the slot from now on.
	Since time.Time
	// Live is the object as a pass saw it last; nil if it is not there or could not be read.
	Live *unstructured.Unstructured
}

// Decide what to do with an object now. An error is one of encoding, and means that
// nothing can be decided.
func Decide(f Facts) (Decision, error) {
	o := remediation.Object{KnownUID: f.Slot.UID, Again: f.Lifecycle == Mutable, Presence: remediation.Absent}
	switch {
	case f.ReadErr != nil:
		o.Presence = remediation.Unread
	case f.Live != nil:
		o.Presence, o.UID = remediation.Present, string(f.Live.GetUID())
		o.OwnMarks = f.Live.GetAnnotations()[SlotAnnotation] == f.Slot.ID
	}
	switch found := o.Find(); {
	case o.Presence == remediation.Unread:
		return f.unread(), nil
	case found == remediation.Missing:
		return f.absent(), nil
	case found == remediation.Taken:
		return f.final(ReasonTaken, "an object with this name exists and belongs to another controller"), nil
	case found == remediation.Lost && f.Live == nil:
		return f.final(ReasonLost, "the object was deleted"), nil
	case found == remediation.Lost:
		return f.final(ReasonLost, "the object was deleted and replaced by another object with its name"), nil
	case found == remediation.Found, f.Slot.Applied == nil, f.intended() && f.Slot.Applied.Digest != f.Slot.Intended.Digest:
		return f.arrived(), nil
	}
	return f.evaluate()
}

// arrived decides about an object that was written, by whomever, and not looked at since.
func (f Facts) arrived() Decision {
	d := Decision{Do: Settle, Health: unknown(ReasonInFlight, "the object was written recently"), Since: f.Now.UTC()}
	if f.intended() && f.Lifecycle == Mutable && overtaken(f.Live) {
		d.Do, d.Health = Restore, unknown(ReasonDrifted, "another client changed the object's definition")
	}
	return d
}

// intended reports whether the live object bears what was intended.
func (f Facts) intended() bool {
	return f.Slot.Intended != nil && f.Live.GetAnnotations()[DefinitionAnnotation] == f.Slot.Intended.Digest
}

// unread decides about an object that could not be read: that begins no wait, interrupts
// none, and ends none. Whether its time is up is decided when it can be read.
func (f Facts) unread() Decision {
	return Decision{Do: Nothing, Since: f.Slot.Since, Health: healthrule.Evaluate(nil, f.Rule, f.ReadErr)}
}

// timeout is how long the object may be without a verdict. A wait that began ahead of now
// was written by a clock that has been set right since: it begins now.
func (f Facts) timeout(since time.Time) remediation.VerdictTimeout {
	if since.IsZero() || since.After(f.Now) {
		since = f.Now.UTC()
	}
	return remediation.VerdictTimeout{Since: since, Timeout: f.UnknownTimeout}
}

// absent decides about an object that is certainly not there.
func (f Facts) absent() Decision {
	d := f.waiting(healthrule.Evaluate(nil, f.Rule, nil))
	switch {
	case f.Slot.Intended != nil && !f.outdated():
		d.Do = Create
	case f.Wanted.Digest != "":
		d.Do = Intend
	}
	return d
}

// outdated reports whether something newer than what is intended is wanted.
func (f Facts) outdated() bool {
	return f.Wanted.Digest != "" && f.Slot.Intended.Digest != f.Wanted.Digest
}

// waiting is nothing to do; without a verdict the time counts from its begin.
func (f Facts) waiting(health healthrule.Result) Decision {
	d := Decision{Do: Nothing, Health: health}
	if health.State == healthrule.Unknown {
		p := f.timeout(f.Slot.Since)
		d.Since, d.Health = p.Since, p.Evaluate(health, f.Now).Health
	}
	return d
}

func (f Facts) final(reason, message string) Decision {
	return Decision{Do: Nothing, Final: true, Health: healthrule.Result{State: healthrule.Unhealthy, Reason: reason, Message: message}}
}

func unknown(reason, message string) healthrule.Result {
	return healthrule.Result{State: healthrule.Unknown, Reason: reason, Message: message}
}

// evaluate decides about an object that was written before: drift first, then its state.
func (f Facts) evaluate() (Decision, error) {
	drifted, err := f.Slot.Applied.Drifted(f.Live)
	if err != nil {
		return Decision{}, err
	}
	if drifted && f.Lifecycle == Mutable {
		d := f.waiting(unknown(ReasonDrifted, "another client changed the object's definition"))
		d.Do = Revert
		return d, nil
	}
	d := f.waiting(healthrule.Evaluate(f.Live, f.Rule, nil))
	if f.Live.GetDeletionTimestamp() != nil && d.Health.State == healthrule.Unhealthy {
		return f.deleted(d.Health), nil
	}
	d.Drifted, d.Read = drifted, d.Health.State == healthrule.Healthy && !drifted
	if d.Health.State == healthrule.Unknown || f.Lifecycle == Immutable {
		return d, nil
	}
	switch wanted := f.Wanted.Digest; {
	case wanted == "" || wanted == f.Slot.Applied.Digest:
	case f.Slot.Intended != nil && f.Slot.Intended.Digest == wanted:
		d.Do = Apply
	default:
		d.Do = Intend
	}
	return d, nil
}

// deleted decides about an object that fails while a finalizer keeps it: that is its
// deletion's doing, or nobody knows.
func (f Facts) deleted(result healthrule.Result) Decision {
	message := "the object is being deleted, its status is " + result.Reason + ": " + result.Message
	if f.Lifecycle == Immutable {
		return f.final(ReasonLost, message)
	}
	return f.waiting(unknown(ReasonLost, message)) // it is made again
}

// Remember returns the slot after a decision, which has to be kept before the object is
// written. An error is one of encoding.
func (f Facts) Remember(d Decision) (Slot, error) {
	s := f.Slot
	s.Since = d.Since
	switch d.Do { //nolint:exhaustive // the others change nothing that is remembered
	case Intend:
		s.Intended = &f.Wanted
	case Settle:
		return f.settled(s)
	}
	return s, nil
}

// settled remembers the live object: what was intended, if it bears that; what was
// applied, if somebody made it again; else it counts as it is, since the slot was lost.
func (f Facts) settled(s Slot) (Slot, error) {
	applied, err := Definition{Digest: f.Live.GetAnnotations()[DefinitionAnnotation]}.As(f.Live)
	switch {
	case f.intended():
		returned := applied.Returned
		if applied, s.Intended = *s.Intended, nil; !overtaken(f.Live) {
			applied.Returned, applied.Generation = returned, f.Live.GetGeneration()
		} // else it is another's, and counts as changed for ever
	case s.Applied != nil && s.Applied.Digest == applied.Digest:
		applied = *s.Applied
	}
	s.Applied, s.UID = &applied, string(f.Live.GetUID())
	return s, err
}
