package artifact

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Resource is where an object is read and written: a dynamic client's resource in a
// namespace is one.
type Resource interface {
	Get(ctx context.Context, name string, o metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error)
	Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error)
}

// Object is one rendered object.
type Object struct {
	Resource  Resource
	Name      string
	Lifecycle Lifecycle
	// Rule is nil where what exists is healthy.
	Rule *healthrule.Rule
	// Paths of the outputs, by their names.
	Paths          map[string]string
	UnknownTimeout time.Duration
	// ReadOnly: nothing may be written now. What was written is still looked at.
	ReadOnly bool
}

// Progress is what is kept of an object between two passes.
type Progress struct {
	Slot    Slot     `json:"slot"`
	Outputs []Output `json:"outputs,omitempty"`
}

// Reasons that come of reading and writing.
const (
	// ReasonOutputMissing: the object is healthy, and an output of its template is missing. The step waits until its
	// `timeout`, then fails, and the run ends as Misconfigured. Action: correct the path of the output in the
	// RepairTemplate, or the program that writes it.
	ReasonOutputMissing = "OutputMissing"
	// ReasonRefused: the API server rejects the object as invalid, so the step fails and the run ends as
	// Misconfigured. Action: correct the RepairTemplate or its inputs.
	ReasonRefused = "Refused"
)

// FieldManager of what is written.
const FieldManager = "nvsentinel"

// maxReads bounds the looks of one pass; intend, write, settle and the last look are four.
const maxReads = 6

// raceWait is the pause after as many.
const raceWait = time.Second

// Pass takes an object as far as it goes now. save keeps the progress; what it kept is
// what the next pass, perhaps of another process, is to be given. An error of reading
// is a decision (Unknown), one of writing or saving is returned: wait and pass again.
func (o Object) Pass(ctx context.Context, p Progress, wanted Definition, now time.Time, save func(context.Context, Progress) error) (Progress, Decision, error) {
	for range maxReads {
		f := Facts{Slot: p.Slot, Lifecycle: o.Lifecycle, Rule: o.Rule, Wanted: wanted, UnknownTimeout: o.UnknownTimeout, Now: now}
		f.Live, f.ReadErr = o.read(ctx)
		d, err := Decide(f)
		if err != nil {
			return p, d, err
		}
		if f.ReadErr == nil {
			d.Live = f.Live
		}
		if o.ReadOnly && d.Do != Settle {
			d.Deferred, d.Do = d.Do != Nothing, Nothing
		}
		next, err := o.remember(f, p, &d)
		if err != nil {
			return p, d, err
		}
		if !reflect.DeepEqual(p, next) {
			if err := save(ctx, next); err != nil {
				return p, d, fmt.Errorf("storing the progress of %s: %w", o.Name, err)
			}
			p = next
		}
		switch again, err := o.carryOut(ctx, f, &d); {
		case err != nil:
			return p, d, err
		case !again:
			return p, d, nil
		}
	}
	return p, Decision{}, retry.Wait(raceWait, o.Name+" changes faster than it is reconciled")
}

// read reads the object; nil is certain absence.
func (o Object) read(ctx context.Context) (*unstructured.Unstructured, error) {
	live, err := o.Resource.Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return nil, nil
	}
	return live, err
}

// remember is the progress after a decision: outputs are read before anything new is
// intended. One that is missing makes the decision wait.
func (o Object) remember(f Facts, p Progress, d *Decision) (Progress, error) {
	if d.Read {
		outputs, err := Read(f.Live, o.Paths, *f.Slot.Applied, p.Outputs, f.Now)
		if err == nil {
			p.Outputs = outputs
		} else {
			f.withhold(d, err)
		}
	}
	var err error
	p.Slot, err = f.Remember(*d)
	return p, err
}

// withhold makes a healthy object of which an output is missing one without a verdict:
// what would be written now would lose the output.
func (f Facts) withhold(d *Decision, missing error) {
	waits := f.waiting(unknown(ReasonOutputMissing, missing.Error()))
	if waits.Health.State == healthrule.Unhealthy { // for too long, which proves nothing
		waits.Do, waits.Health.Reason = d.Do, ReasonOutputMissing
	}
	waits.Live = d.Live
	*d = waits
}

// carryOut writes the object, if so decided; again asks for another look.
func (o Object) carryOut(ctx context.Context, f Facts, d *Decision) (again bool, err error) {
	switch d.Do {
	case Nothing:
		return false, nil
	case Intend, Settle:
		return true, nil
	case Create:
		var made *unstructured.Unstructured
		if made, err = f.Slot.Intended.Object(0); err != nil {
			return false, err
		}
		made.SetName(o.Name)
		_, err = o.Resource.Create(ctx, made, metav1.CreateOptions{FieldManager: FieldManager})
	case Apply, Revert, Restore:
		var patch []byte
		if patch, err = f.patch(d.Do); err != nil {
			return false, err
		}
		_, err = o.Resource.Patch(ctx, o.Name, PatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	}
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && d.Do != Create:
		return true, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		live := d.Live
		*d = f.final(ReasonRefused, err.Error())
		d.Live = live
		d.Final = f.Lifecycle == Immutable // else a later definition may do
		return false, nil
	}
	return false, fmt.Errorf("writing %s (%s): %w", o.Name, d.Do, err)
}

// patch is the change of the live object that Apply, Revert or Restore makes.
func (f Facts) patch(do Verb) ([]byte, error) {
	switch do { //nolint:exhaustive // the others make none
	case Revert:
		return f.Slot.Applied.Revert(f.Live)
	case Restore:
		return f.Slot.Intended.Restore(f.Live)
	}
	return f.Slot.Intended.Update(*f.Slot.Applied, f.Live)
}
