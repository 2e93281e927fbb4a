package machine

import (
	"slices"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Rejection names what was rejected: reports of a match, or recoveries.
type Rejection struct {
	Key       Key
	IsHealthy bool
}

// Reject takes an event out that will never be accepted, so that it is sent again once
// the cause is gone: a code that was not reported is not open, and one whose recovery was
// not reported is open again. A later evaluation of the object decides about it again.
//
// Reports and recoveries of a code follow each other in turn, so that the next one undoes
// what the rejected one would have done: neither is needed any more.
func (t *Tracker) Reject(seq uint64) (of Rejection, known bool) {
	i := slices.IndexFunc(t.waiting, func(w Waiting) bool { return w.Seq == seq })
	if i < 0 {
		return Rejection{}, false
	}
	e := t.waiting[i].Event
	of = Rejection{keyOf(e), e.GetIsHealthy()}
	f := faultOf(e)
	next := slices.IndexFunc(t.waiting[i+1:], func(w Waiting) bool {
		return keyOf(w.Event) == of.Key && slices.Equal(w.Event.GetErrorCode(), e.GetErrorCode())
	})
	switch {
	case next >= 0:
		if w := t.waiting[i+1+next]; faultOf(w.Event).alike(f) {
			t.Remove(w.Seq)
		}
	case of.IsHealthy:
		t.reopen(of.Key, f)
	default:
		t.takeBack(of.Key, f)
	}
	t.Remove(seq)
	return of, true
}

// takeBack takes the code of a report out of the open fault, which ends with its last one.
func (t *Tracker) takeBack(k Key, reported Fault) {
	f, open := t.open[k]
	if !open || !f.alike(reported) {
		return
	}
	f.Codes = slices.DeleteFunc(slices.Clone(f.Codes), func(code string) bool { return slices.Contains(reported.Codes, code) })
	t.close(k)
	if len(f.Codes) > 0 {
		t.begin(k, f)
	}
}

// reopen puts a fault back whose recovery was rejected. An object that has another fault
// now, of another node or class, keeps that one.
func (t *Tracker) reopen(k Key, recovered Fault) {
	f, open := t.open[k]
	switch {
	case !open:
		t.begin(k, recovered)
	case f.alike(recovered) && !slices.Equal(f.Codes, recovered.Codes):
		t.close(k)
		f.Codes = append(slices.Clone(f.Codes), recovered.Codes...)
		t.begin(k, f)
	}
}

// keyOf is the key of an event's machine.
func keyOf(e *protos.HealthEvent) Key {
	entity := e.GetEntitiesImpacted()[0]
	return Key{Policy: e.GetCheckName(), Type: entity.GetEntityType(), Object: entity.GetEntityValue()}
}

// faultOf is the fault that an event is about, with the event's code alone.
func faultOf(e *protos.HealthEvent) Fault {
	r := record.FromProto(e)
	return Fault{Node: r.NodeName, ComponentClass: r.ComponentClass, Codes: r.ErrorCode, Strategy: r.ProcessingStrategy}
}
